"""Lets the policy answer a few problems during training, with the local sampler.

probe.jsonl, one line per probe:

    {"step": 50, "problems": 16, "responses": 16, "accuracy": 0.81, "stop_ratio": 1.0,
     "mean_length": 43.2}

The sampler has its own random streams, so a run has the same losses with and without the probe.
Importing this module is cheap; MindSpore is imported when a Prober is created.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schema import SandboxPlacement
from pcl_reasoner.train.config import Probe
from pcl_reasoner.verifiers.held_out import HeldOut

if TYPE_CHECKING:
    from pcl_reasoner.local_sampler.sampler import Drawn
    from pcl_reasoner.sandbox.pool import Sandboxes

PROBE = "probe.jsonl"
PROBLEMS = "probe_problems.jsonl"
SANDBOX = "probe_sandbox.json"
"""File beside PROBLEMS with the launch file's ``placement.sandbox``, which changes no result."""


def write_files(folder: Path, problems: Sequence[HeldOut], placement: SandboxPlacement) -> None:
    """Write what the training process needs: PROBLEMS and SANDBOX."""
    text = "".join(json.dumps(problem, ensure_ascii=False) + "\n" for problem in problems)
    (folder / PROBLEMS).write_text(text, encoding="utf-8")
    (folder / SANDBOX).write_text(placement.model_dump_json(), encoding="utf-8")


def read_files(problems: Path) -> tuple[list[HeldOut], SandboxPlacement]:
    """Return what `write_files` has written; ``problems`` is the file PROBLEMS."""
    lines = problems.read_text(encoding="utf-8").split("\n")
    placement = problems.with_name(SANDBOX).read_text(encoding="utf-8")
    found = [json.loads(line) for line in lines if line]
    return found, SandboxPlacement.model_validate_json(placement)


class Prober:
    """Answers the same problems in every probe, with the current weights of training.

    Args:
        settings: The settings of the probe, including its sampling settings.
        policy: The policy before training: a folder with the shape, tokenizer and template.
        problems: The problems, as read_problems returns them.
        placement: How and where programs run; None: as a launch file says that leaves it out.
    """

    def __init__(
        self,
        settings: Probe,
        policy: Path,
        problems: Sequence[HeldOut],
        placement: SandboxPlacement | None = None,
    ) -> None:
        from pcl_reasoner.inference.dialogue import Dialogue, Problem
        from pcl_reasoner.local_sampler.draw import stream_seed
        from pcl_reasoner.local_sampler.sampler import LocalSampler, Row

        self.problems, self.settings = problems, settings
        self.sandboxes = _sandboxes(settings, problems, placement or SandboxPlacement())
        self.dialogue = Dialogue(policy, settings)
        self.sampler = LocalSampler(policy)
        asked = [
            Problem(item["id"], item["problem"], kind=item.get("kind", "math")) for item in problems
        ]
        prompts = [self.dialogue.prompt(problem) for problem in asked]
        longest = min(settings.max_model_len, self.sampler.shape.max_position_embedding)
        limits = [self.dialogue.response_limit(prompt, longest) for prompt in prompts]
        if min(limits) < 1:
            name = problems[limits.index(min(limits))]["id"]
            raise StageError(
                f"probe: the prompt of problem {name} leaves no tokens for a response."
            )
        self.prompts = [prompt.ids for prompt in prompts]
        self.rows = [
            Row(index, stream_seed(settings.seed, problem["id"], sample))
            for index, problem in enumerate(problems)
            for sample in range(settings.n)
        ]
        self.response_limits = [limits[row.prompt] for row in self.rows]
        self.sampler.prepare(self._layout())

    def _layout(self) -> Any:
        """Return one layout for all batches, so that all probes compile only two graphs."""
        from pcl_reasoner.local_sampler.sampler import PROMPT_MULTIPLE, Layout

        slots = -(-max(map(len, self.prompts)) // PROMPT_MULTIPLE) * PROMPT_MULTIPLE
        rows = min(self.settings.batch, len(self.rows))
        return Layout(len(self.prompts), slots, rows, slots + max(self.response_limits))

    def ask(self, weights: Mapping[str, Any]) -> dict[str, Any]:
        """Answer and grade every problem.

        Args:
            weights: Hugging Face name -> float32 array.

        Returns:
            The values of a line of probe.jsonl, without ``step``.
        """
        self.sampler.load(weights)
        drawn: list[Drawn] = []
        for start in range(0, len(self.rows), self.settings.batch):
            part = slice(start, start + self.settings.batch)
            drawn += self.sampler.sample(
                self.prompts, self.rows[part], self.response_limits[part], self.settings
            )
        return self._graded(drawn)

    def _graded(self, drawn: Sequence[Drawn]) -> dict[str, Any]:
        from pcl_reasoner.verifiers.small_batch import Answered, grade_batch

        batch = []
        for row, response in zip(self.rows, drawn, strict=True):
            text = self.dialogue.response(response.token_ids, response.finish_reason)
            asked = self.problems[row.prompt]
            checks = json.loads(asked.get("checks") or "{}")
            kind, truth = asked.get("kind", "math"), asked["answer"]
            batch.append(Answered(asked["id"], kind, truth, checks, text, response.finish_reason))
        verdicts = grade_batch(batch, self.sandboxes)
        count = len(drawn)
        return {
            "problems": len(self.problems),
            "responses": count,
            "accuracy": sum(one.outcome == "correct" for one in verdicts) / count,
            "stop_ratio": sum(one.finish_reason == "stop" for one in drawn) / count,
            "mean_length": sum(len(one.token_ids) for one in drawn) / count,
        }


def _sandboxes(
    settings: Probe, problems: Sequence[HeldOut], placement: SandboxPlacement
) -> Sandboxes | None:
    """Return sandboxes for the programs of code problems; None if there are no such problems.

    Raises:
        StageError: No sandbox can be had on this machine.
    """
    if not any(problem.get("kind") == "code" for problem in problems):
        return None
    from pcl_reasoner.sandbox.opening import choose, opened

    return opened(settings.sandbox, placement, choose(settings.sandbox, placement))
