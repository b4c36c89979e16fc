"""The callback that answers the probe's problems in the training process."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from mindformers.tools.register import MindFormerModuleType, MindFormerRegister
from mindspore.train.callback import Callback

from pcl_reasoner.train.config import Probe
from pcl_reasoner.train.probe import Prober, read_files
from pcl_reasoner.trainer.step import truncate_lines
from pcl_reasoner.weights.conversion import shape_in
from pcl_reasoner.weights.names import expected_shapes, mindformers_name


@MindFormerRegister.register(MindFormerModuleType.CALLBACK)
class PclProbe(Callback):
    """Lets the model answer problems before the first step and then at intervals, on rank 0.

    Args:
        path: The file probe.jsonl, which gets one line per probe.
        problems: File of the problems, one JSON line per problem; beside it is a file that says
            how and where programs run.
        policy: The Hugging Face folder that training starts from.
        settings: The fields of ``Probe`` that differ from their defaults.
    """

    def __init__(
        self, path: str, problems: str, policy: str, settings: dict[str, Any], **kwargs: Any
    ) -> None:
        super().__init__()
        self.path, self.problems, self.policy = Path(path), Path(problems), Path(policy)
        self.settings = Probe(**settings)
        self.writes = os.environ.get("RANK_ID", "0") == "0"
        self.prober: Prober | None = None
        self.steps_before = 0

    def on_train_begin(self, run_context: Any) -> None:
        """Remove the lines of steps that will be repeated; run a probe if one is due now."""
        args = run_context.original_args()
        self.steps_before = int(args.train_dataset.get_init_step())
        if not self.writes:
            return
        kept = truncate_lines(self.path, self.steps_before, writes=True)
        due = self.steps_before % self.settings.every == 0
        if due and (not kept or kept[-1]["step"] != self.steps_before):
            self._ask(self.steps_before, args.train_network)

    def on_train_step_end(self, run_context: Any) -> None:
        """Run a probe if one is due after this step."""
        args = run_context.original_args()
        step = self.steps_before + int(args.cur_step_num)
        if self.writes and step % self.settings.every == 0:
            self._ask(step, args.train_network)

    def _ask(self, step: int, network: Any) -> None:
        if self.prober is None:
            self.prober = Prober(self.settings, self.policy, *read_files(self.problems))
        parameters = {parameter.name: parameter for parameter in network.get_parameters()}
        weights = {
            name: parameters[mindformers_name(name)].asnumpy().astype(np.float32)
            for name in expected_shapes(shape_in(self.policy))
        }
        answered = self.prober.ask(weights)
        with self.path.open("a", encoding="utf-8") as handle:
            handle.write(json.dumps({"step": step, **answered}) + "\n")
