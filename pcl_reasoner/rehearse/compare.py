"""Compares the ranks of a rehearsal with its one process: figures per step, and every slice.

After one step from random weights, Adam's first moment is the gradient times 1 − β₁. So a wrong
gradient shows there, although the loss is correct and AdamW hides constant factors. For a stage rl,
a step is a round, and the weights that are handed over after each round are compared, too.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.rehearse.rounds import weight_errors
from pcl_reasoner.rehearse.run import Finished
from pcl_reasoner.train.render import WORK
from pcl_reasoner.weights.slices import Layouts, read_layouts

PARAMETER = "parameter"
LIMITS = {"gradient": 1e-5, "squared gradient": 2e-5, PARAMETER: 0.1}
"""Largest error of a tensor of each kind; a parameter's is in units of its update (`_error`)."""
FIRST_STEP, LATER_STEPS = 1e-5, 1e-4
"""Largest relative error of a step's loss, gradient norm and figures. An update by AdamW has the
sign of the gradient, so a gradient of almost 0 may move its parameter in either direction."""
KINDS = {"adam_m": "gradient", "adam_v": "squared gradient"}
"""First part of a tensor's name -> what the tensor is after one step; others are parameters."""
_STEP = re.compile(r"-(\d+)_(\d+)\.safetensors$")
"""End of a checkpoint's name: epoch and step. With sink mode every step is an epoch; for a stage rl
a step is a micro-step."""
HANDED_OVER = "weights handed over"
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Tensor:
    """The largest error of a tensor's slices.

    Args:
        name: The tensor's name in MindFormers.
        kind: ``gradient``, ``squared gradient`` or ``parameter``.
        error: Largest error of a slice.
        rank: The rank that holds this slice.
        ranks: Number of ranks that hold the tensor or a slice of it.
    """

    name: str
    kind: str
    error: float
    rank: int
    ranks: int


@dataclass(frozen=True)
class Comparison:
    """All differences between ranks and one process.

    Args:
        loss: Relative error of each step's loss.
        norm: Relative error of each step's gradient norm.
        figures: Largest relative error of each step's other figures, e.g. counts and mean log π.
        tensors: The tensors after one step, the largest error first.
        missing: Tensors that no rank holds completely.
        weights: Of a stage rl, after each round: the error of the tensor that differs most, in
            updates.
    """

    loss: list[float]
    norm: list[float]
    figures: list[float]
    tensors: list[Tensor]
    missing: list[str]
    weights: list[float] = field(default_factory=list)

    def worst(self, kind: str) -> float:
        """Return the largest error of a kind of tensor."""
        return max((one.error for one in self.tensors if one.kind == kind), default=0.0)

    def off(self) -> list[Tensor]:
        """Return the tensors whose error is above the limit of their kind."""
        return [one for one in self.tensors if one.error > LIMITS[one.kind]]

    def steps_off(self) -> list[tuple[str, int, float]]:
        """Return (quantity, step, error) of the steps whose error is above the limit."""
        quantities = {"loss": self.loss, "gradient norm": self.norm, "figures": self.figures}
        found = [
            (name, step, error)
            for name, errors in quantities.items()
            for step, error in enumerate(errors, 1)
            if error > (FIRST_STEP if step == 1 else LATER_STEPS)
        ]
        weights = ((HANDED_OVER, step, error) for step, error in enumerate(self.weights, 1))
        return [*found, *(one for one in weights if one[2] > LIMITS[PARAMETER])]


def compare(one: Finished, ranks: Finished) -> Comparison:
    """Compare the ranks with the one process.

    Raises:
        StageError: A run has no checkpoint of its first step, or other steps than the other run.
    """
    if [step["step"] for step in one.steps] != [step["step"] for step in ranks.steps]:
        raise StageError(
            f"{ranks.folder}: has {len(ranks.steps)} steps, the one process has "
            f"{len(one.steps)}. Read both logs."
        )
    update = float(one.steps[0]["learning_rate"])
    tensors, missing = _tensors(one.folder / WORK, ranks.folder / WORK, update)
    return Comparison(
        loss=_relative([step["loss"] for step in one.steps], [s["loss"] for s in ranks.steps]),
        norm=_relative(
            [step["grad_norm"] for step in one.steps], [s["grad_norm"] for s in ranks.steps]
        ),
        figures=[_figures(*both) for both in zip(one.steps, ranks.steps, strict=True)],
        tensors=sorted(tensors, key=lambda found: -found.error / LIMITS[found.kind]),
        missing=missing,
        weights=weight_errors(one.folder, ranks.folder, update),
    )


def _relative(expected: list[float | None], got: list[float | None]) -> list[float]:
    """Return relative errors; a value that is not finite is None in metrics.jsonl."""
    found = []
    for one, other in zip(expected, got, strict=True):
        if one is None or other is None:
            found.append(0.0 if one is other else float("inf"))
        else:
            found.append(abs(one - other) / max(abs(one), 1e-30))
    return found


def _figures(one: Mapping[str, Any], ranks: Mapping[str, Any]) -> float:
    """Compare the figures that both runs have; ranks have no gradient weights."""
    names = [
        name
        for name, value in one.items()
        if isinstance(value, (int, float)) and isinstance(ranks[name], (int, float))
    ]
    return max(_relative([one[name] for name in names], [ranks[name] for name in names]))


def _files(work: Path) -> dict[int, Path]:
    """Return rank -> the first step's checkpoint."""
    found = {
        int(folder.name.removeprefix("rank_")): min(files, key=_number)
        for folder in (work / "checkpoint").glob("rank_*")
        if (files := [file for file in folder.iterdir() if _STEP.search(file.name)])
    }
    if not found:
        raise StageError(f"{work}/checkpoint: has no checkpoint of the first step. Read the log.")
    return found


def _number(file: Path) -> tuple[int, int]:
    match = _STEP.search(file.name)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _tensors(one: Path, ranks: Path, update: float) -> tuple[list[Tensor], list[str]]:
    """Compare every tensor of the one process with its slices on all ranks."""
    from safetensors.numpy import load_file

    (complete_file,) = _files(one).values()
    stored = load_file(complete_file)
    # A checkpoint also has counters, which are not trained.
    complete = {name: values for name, values in stored.items() if _is_trained(name, stored)}
    layouts = read_layouts(ranks / "strategy")
    files = _files(ranks)
    per_stage = len(files) // _stages(layouts)
    worst: dict[str, tuple[float, int]] = {}
    parts: dict[str, set[tuple[int, ...]]] = {}
    holders: dict[str, int] = {}
    for rank, file in sorted(files.items()):
        stage, index = divmod(rank, per_stage)
        for name, held in load_file(file).items():
            if name not in complete or _not_of_stage(name, layouts, stage):
                continue
            part, expected = _slice(name, complete[name], layouts, stage, index)
            error = _error(name, expected, held, complete[name], update)
            worst[name] = max(worst.get(name, (-1.0, 0)), (error, rank))
            parts.setdefault(name, set()).add(part)
            holders[name] = holders.get(name, 0) + 1
    found = [Tensor(name, _kind(name), *worst[name], holders[name]) for name in worst]
    missing = [name for name in complete if not _all_parts(name, parts, layouts)]
    return found, missing


def _is_trained(name: str, stored: Mapping[str, Array]) -> bool:
    """Return whether a tensor is a trained parameter or one of its moments."""
    return name.partition(".")[0] in KINDS or f"adam_m.{name}" in stored


def _stages(layouts: Layouts) -> int:
    return 1 + max((stage for stages in layouts.values() for stage in stages), default=0)


def _not_of_stage(name: str, layouts: Layouts, stage: int) -> bool:
    """Return whether a tensor belongs to other stages: a rank saves its start values, too."""
    return name in layouts and stage not in layouts[name]


def _slice(
    name: str, complete: Array, layouts: Layouts, stage: int, index: int
) -> tuple[tuple[int, ...], Array]:
    """Return which part of a tensor a rank holds, and this part of the complete tensor."""
    if name not in layouts:
        return (), complete
    layout = layouts[name][stage]
    part = layout.part_of(index)
    spans = tuple(
        slice(number * size // parts, (number + 1) * size // parts)
        for number, size, parts in zip(part, complete.shape, layout.parts, strict=True)
    )
    return part, complete[spans]


def _error(name: str, expected: Array, held: Array, complete: Array, update: float) -> float:
    """Return the error of a slice; infinite if a number is not finite or the shape differs.

    For a gradient: the largest difference, divided by the complete tensor's largest value. For a
    parameter: the root mean square of the differences, divided by the learning rate, which is the
    size of AdamW's first update. So 1 means that the slice was not updated.
    """
    if expected.shape != held.shape:
        return float("inf")
    difference = np.abs(expected.astype(np.float64) - held)
    if _kind(name) == PARAMETER:
        found = float(np.sqrt((difference**2).mean())) / update
    else:
        found = float(difference.max(initial=0)) / (float(np.abs(complete).max(initial=0)) or 1.0)
    return found if np.isfinite(found) else float("inf")


def _all_parts(name: str, parts: Mapping[str, set[tuple[int, ...]]], layouts: Layouts) -> bool:
    if name not in parts:
        return False
    if name not in layouts:
        return True
    return len(parts[name]) == int(np.prod(next(iter(layouts[name].values())).parts))


def _kind(name: str) -> str:
    return KINDS.get(name.partition(".")[0], PARAMETER)


def summary(comparison: Comparison) -> Iterator[tuple[str, float]]:
    """Yield (quantity, largest error)."""
    yield "loss", max(comparison.loss)
    yield "gradient norm", max(comparison.norm)
    yield "figures of a step", max(comparison.figures)
    for kind in (*KINDS.values(), PARAMETER):
        yield kind, comparison.worst(kind)
    if comparison.weights:
        yield HANDED_OVER, max(comparison.weights)


def as_json(comparison: Comparison) -> dict[str, Any]:
    """Return the comparison as a JSON value."""
    return {
        "worst": {name: _finite(error) for name, error in summary(comparison)},
        "loss": [_finite(error) for error in comparison.loss],
        "norm": [_finite(error) for error in comparison.norm],
        "figures": [_finite(error) for error in comparison.figures],
        "weights": [_finite(error) for error in comparison.weights],
        "missing": comparison.missing,
        "tensors": [{**vars(one), "error": _finite(one.error)} for one in comparison.tensors],
    }


def _finite(error: float) -> float | str:
    """JSON has no infinity."""
    return error if np.isfinite(error) else "infinite"
