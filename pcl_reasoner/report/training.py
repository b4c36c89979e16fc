"""Summarises a training stage's metrics: means of the first and last steps, and warnings.

A sample line of metrics.jsonl::

    {"step": 1, "loss": 0.48, "learning_rate": 1e-4, "grad_norm": 0.9, "overflow": 0,
     "correct_count": 10, "correct_m": -0.2, "correct_p": 0.8, "incorrect_count": 6, …}

m is the mean log-probability of a response's trained tokens, and p = exp(m).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pcl_reasoner.losses import LOSSES
from pcl_reasoner.page_parts.records import StageRecord, finite

SHIFT = ("mean_length", "stop_ratio")
"""Figures of the probe that show what SFT on a reasoning model's responses changes."""
FIGURES = ("loss", "correct_p", "incorrect_p", "grad_norm", "learning_rate")


def digest(record: StageRecord) -> dict[str, Any]:
    """Summarise a training stage.

    Args:
        record: A stage with metrics.

    Returns:
        The loss's name, the numbers of steps, overflows, correct and incorrect responses (None if
        none are graded), and each figure's means over the first and last tenth of the steps.
    """
    metrics: Sequence[dict[str, Any]] = record.files["metrics"]
    tenth = max(1, len(metrics) // 10)
    correct = sum(finite(step.get("correct_count")) or 0.0 for step in metrics)
    incorrect = sum(finite(step.get("incorrect_count")) or 0.0 for step in metrics)
    total = correct + incorrect
    loss_name = str(record.config.get("loss", ""))
    # SFT counts its ungraded responses as correct. Without p, other losses may do so, too.
    has_p = any(finite(step.get("correct_p")) is not None for step in metrics)
    graded = incorrect > 0 or (has_p and loss_name != "sft")
    return {
        "key": record.key,
        "name": record.name,
        "loss_name": loss_name,
        "steps": len(metrics),
        "overflows": sum(1 for step in metrics if step.get("overflow")),
        "correct": int(correct) if graded else None,
        "incorrect": int(incorrect) if graded else None,
        "correct_share": correct / total if graded and total else None,
        "shift": pattern_shift(record),
        "figures": {
            name: {
                "first": _mean_figure(metrics[:tenth], name),
                "last": _mean_figure(metrics[-tenth:], name),
            }
            for name in FIGURES
        },
    }


def pattern_shift(record: StageRecord) -> dict[str, Any] | None:
    """Compare the first third of a probe's lines with the last third.

    Args:
        record: A stage with metrics.

    Returns:
        For the loss ``sft`` with at least three probes: their number, the number in a third, and
        the means of ``mean_length`` and ``stop_ratio`` in both thirds. Else None.
    """
    curves = [curve(record, name, "probe") for name in SHIFT]
    number = min(map(len, curves))
    if record.config.get("loss") != "sft" or number < 3:
        return None
    third = number // 3
    means = {
        name: {
            "first": sum(value for _, value in points[:third]) / third,
            "last": sum(value for _, value in points[-third:]) / third,
        }
        for name, points in zip(SHIFT, curves, strict=True)
    }
    return {"probes": number, "third": third, **means}


def _mean_figure(steps: Sequence[dict[str, Any]], name: str) -> float | None:
    """Return a figure's mean over steps; p is weighted by the number of responses per step."""
    kind, _, figure = name.partition("_")
    weight = f"{kind}_count" if figure == "p" else ""
    pairs = [(finite(step.get(name)), finite(step.get(weight))) for step in steps]
    weighted = [(value, 1.0 if n is None else n) for value, n in pairs if value is not None]
    total = sum(n for _, n in weighted)
    return sum(value * n for value, n in weighted) / total if total else None


def warnings_about(training: dict[str, Any]) -> list[str]:
    """Return the reasons not to trust a training stage's result, one text per reason.

    Args:
        training: The result of ``digest``.
    """
    return [f"{training['key']}: {reason}" for reason in _doubts(training)]


def _doubts(training: Mapping[str, Any]) -> Iterator[str]:
    """Yield the reasons for ``warnings_about``, without the stage's key in front."""
    share = training["correct_share"]
    loss = LOSSES.get(training["loss_name"])
    if loss and loss.pushes_down and share is not None and share < 0.5:
        yield (
            f"only {share:.1%} of the responses trained on are correct "
            f"({training['correct']} correct, {training['incorrect']} incorrect). Under one half, "
            "a loss without a baseline pushes down what correct and incorrect answers share, and "
            "can make the model worse."
        )
    first, last = training["figures"]["correct_p"].values()
    if first is not None and last is not None and last < first:
        yield (
            f"p of correct answers fell from {first:.4f} (first tenth of steps) to {last:.4f} "
            "(last tenth). The loss is to raise it; compare with the scores."
        )
    if training["overflows"]:
        yield (
            f"{training['overflows']} of {training['steps']} steps were skipped because gradients "
            "were not finite."
        )


def curve(record: StageRecord, name: str, file: str = "metrics") -> list[tuple[float, float]]:
    """Return (step, value) pairs of a figure; steps without a finite value are left out.

    Args:
        record: A stage with metrics.
        name: A key of the file's lines.
        file: ``metrics`` or ``probe``; a stage without it has no points.
    """
    steps = enumerate(record.files.get(file) or [], start=1)
    pairs = [(finite(line.get("step", row)), finite(line.get(name))) for row, line in steps]
    return [(step, value) for step, value in pairs if step is not None and value is not None]
