"""Summarises a training stage's metrics: first against last tenth of the steps, and warnings.

A sample line of metrics.jsonl::

    {"step": 1, "loss": 0.48, "learning_rate": 1e-4, "grad_norm": 0.9, "overflow": 0,
     "correct_count": 10, "correct_m": -0.2, "correct_p": 0.8, "incorrect_count": 6, …}
"""

from collections.abc import Sequence
from typing import Any

from pcl_reasoner.report.records import StageRecord, finite

FIGURES = ("loss", "correct_p", "incorrect_p", "grad_norm", "learning_rate")


def digest(record: StageRecord) -> dict[str, Any]:
    """Summarise a training stage.

    Args:
        record: A stage with metrics.

    Returns:
        Its steps, its share of correct responses (None if none are graded), and every figure's
        mean over the first and over the last tenth of the steps.
    """
    metrics: Sequence[dict[str, Any]] = record.files["metrics"]
    tenth = max(1, len(metrics) // 10)
    correct = sum(finite(step.get("correct_count")) or 0.0 for step in metrics)
    incorrect = sum(finite(step.get("incorrect_count")) or 0.0 for step in metrics)
    total = correct + incorrect
    # Without incorrect responses and without p, correct_count alone is no sign of grading.
    graded = incorrect > 0 or any(finite(step.get("correct_p")) is not None for step in metrics)
    return {
        "key": record.key,
        "name": record.name,
        "loss_name": str(record.config.get("loss", "")),
        "steps": len(metrics),
        "overflows": sum(1 for step in metrics if step.get("overflow")),
        "correct": int(correct) if graded else None,
        "incorrect": int(incorrect) if graded else None,
        "correct_share": correct / total if graded and total else None,
        "figures": {
            name: {
                "first": _mean_figure(metrics[:tenth], name),
                "last": _mean_figure(metrics[-tenth:], name),
            }
            for name in FIGURES
        },
    }


def _mean_figure(steps: Sequence[dict[str, Any]], name: str) -> float | None:
    """A figure's mean over steps; p is weighted by responses, as their number differs by step."""
    kind, _, figure = name.partition("_")
    weight = f"{kind}_count" if figure == "p" else ""
    pairs = [(finite(step.get(name)), finite(step.get(weight))) for step in steps]
    weighted = [(value, 1.0 if n is None else n) for value, n in pairs if value is not None]
    total = sum(n for _, n in weighted)
    return sum(value * n for value, n in weighted) / total if total else None


def warnings_about(training: dict[str, Any]) -> list[str]:
    """Reasons not to trust a training stage's result, as one text each.

    Args:
        training: As ``digest`` gives it.
    """
    found = []
    share = training["correct_share"]
    if share is not None and share < 0.5:
        found.append(
            f"{training['key']}: only {share:.1%} of the responses trained on are correct "
            f"({training['correct']} correct, {training['incorrect']} incorrect). Under one half, "
            "a loss without a baseline pushes down what correct and incorrect answers share, and "
            "can make the model worse."
        )
    first, last = training["figures"]["correct_p"].values()
    if first is not None and last is not None and last < first:
        found.append(
            f"{training['key']}: p of correct answers fell from {first:.4f} (first tenth of steps)"
            f" to {last:.4f} (last tenth). The loss is to raise it; compare with the scores."
        )
    if training["overflows"]:
        found.append(
            f"{training['key']}: {training['overflows']} of {training['steps']} steps were skipped "
            "because gradients were not finite."
        )
    return found


def curve(record: StageRecord, name: str, file: str = "metrics") -> list[tuple[float, float]]:
    """(step, value) of a figure; steps without a finite value are left out.

    Args:
        record: A stage with metrics.
        name: A key of the file's lines.
        file: ``metrics`` or ``probe``; a stage without it has no points.
    """
    steps = enumerate(record.files.get(file) or [], start=1)
    pairs = [(finite(line.get("step", row)), finite(line.get(name))) for row, line in steps]
    return [(step, value) for step, value in pairs if step is not None and value is not None]
