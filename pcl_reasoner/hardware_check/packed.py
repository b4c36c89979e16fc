"""Checks that packing responses into rows does not change OPG's loss and gradients."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcl_reasoner.hardware_check import small, training
from pcl_reasoner.hardware_check.devices import use_mindformers
from pcl_reasoner.hardware_check.outcome import Check, Outcome, Setting, against_figures, compare

SIZES = (23, 90, 40, 31, 17, 8, 111, 64, 58, 37)
"""Tokens per response; packed, they fill several rows of 128 tokens or one row of 2 048."""
COMPRESSED_LENGTH, PLACES = 2048, 16

TOLERANCES = {
    "float32": {"loss": 1e-5, "gradient_norm": 1e-4, "gradients": 1e-5},
    "bfloat16": {"loss": 5e-3, "gradient_norm": 2e-2, "gradients": 4e-2},
}
"""Largest allowed differences from unpacked rows, and from the CPU's reference values.
docs/cluster/hardware_check.md has their sources."""

Run = tuple[float, list[NDArray[np.float64]]]
"""A loss, and its gradient with respect to each parameter."""


def packed(setting: Setting, folder: Path) -> Outcome:
    """For each kind of mask, compare packed rows with unpacked ones and with the CPU's values."""
    use_mindformers(setting.device)
    policy = folder / "policy"
    found: dict[str, Any] = {"weights": small.write_policy(policy)}
    table = small.samples(SIZES)
    dense = LossAndGradients(setting, policy, small.LENGTH, compressed=False)
    alone = [table.slice(index, 1) for index in range(len(SIZES))]
    apart = dense([row for one in alone for row in small.packed_rows(one, small.LENGTH, PLACES)])
    compressed = LossAndGradients(setting, policy, COMPRESSED_LENGTH, compressed=True)
    outcome, tolerances = Outcome(), TOLERANCES[setting.precision]
    for mask, run in (("dense mask", dense), ("compressed mask", compressed)):
        loss, gradients = together = run(small.packed_rows(table, run.length, PLACES))
        outcome.checks += _alike(mask, together, apart, tolerances)
        found[f"{mask}.loss"] = loss
        found[f"{mask}.gradient_norm"] = float(np.sqrt(sum((one**2).sum() for one in gradients)))
    outcome.figures = found
    outcome.checks += against_figures(found, setting.figures, tolerances)
    return outcome


def _alike(mask: str, left: Run, right: Run, tolerances: Mapping[str, float]) -> list[Check]:
    got, expected = (np.concatenate([part.ravel() for part in run[1]]) for run in (left, right))
    name = f"{mask}, packed gradients are the unpacked ones"
    return [
        compare(f"{mask}, packed loss is the unpacked one", left[0], right[0], tolerances["loss"]),
        compare(name, got, expected, tolerances["gradients"]),
    ]


class LossAndGradients:
    """The model on the device; a call returns the mean loss of all responses and its gradients.

    Rows are run one at a time, so that packed and unpacked rows use the same compiled graph.
    """

    def __init__(self, setting: Setting, policy: Path, length: int, compressed: bool) -> None:
        import mindspore as ms

        from pcl_reasoner.hardware_check.cells import LossOfRow

        self.length, self.compressed = length, compressed
        model = build_model(setting, policy, length, compressed)
        self.run = ms.value_and_grad(LossOfRow(model, compressed), None, model.trainable_params())

    def __call__(self, rows: Sequence[dict[str, Any]]) -> Run:
        """Return the mean loss and its gradients; ``rows`` must contain all test responses."""
        import mindspore as ms

        from pcl_reasoner.trainer.rows import model_row

        total, sums = 0.0, None
        for row in rows:
            columns = model_row(row, PLACES, 1 / len(SIZES), 0.0, self.compressed)
            loss, gradients = self.run(*(ms.Tensor(column[None]) for column in columns.values()))
            total += float(loss.asnumpy())
            arrays = [gradient.asnumpy().astype(np.float64) for gradient in gradients]
            sums = arrays if sums is None else [a + b for a, b in zip(sums, arrays, strict=True)]
        return total, sums or []


def build_model(setting: Setting, policy: Path, length: int, compressed: bool) -> Any:
    """Build the model that the rendered training YAML describes; load the policy's weights."""
    import mindspore as ms

    from pcl_reasoner.train.shape import shape_of
    from pcl_reasoner.trainer.model import PclQwen2Config, PclQwen2ForCausalLM
    from pcl_reasoner.weights.conversion import write_mindformers

    file = policy.parent / "policy.safetensors"
    write_mindformers(policy, file)
    config = training.settings(
        setting, batch=1, seq_length=length, max_segments=PLACES, compressed_mask=compressed
    )
    value = training.rendered(config, shape_of(config, policy), 0, {})
    section = dict(value["model"]["model_config"])
    section.pop("type")
    model = PclQwen2ForCausalLM(config=PclQwen2Config(**section))
    model.set_train()
    left_out, _ = ms.load_param_into_net(model, ms.load_checkpoint(str(file), format="safetensors"))
    missing = [name for name in left_out if not name.endswith("step_figures")]
    if missing:
        raise ValueError(f"the model's parameters {missing} are not among the weights")
    return model
