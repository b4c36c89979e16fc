"""Rules that end a run before its last step, applied to the lines of metrics.jsonl.

This module is cheap to import, because it is imported to check a recipe's settings.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from pcl_reasoner.core.json_lines import whole_lines
from pcl_reasoner.core.stage import StageConfig

STOPPED = "stopped.txt"
"""File beside metrics.jsonl with the reason why a run was stopped."""


class Stop(StageConfig):
    """Rules that end a run; a rule left out has no effect. A non-finite loss always ends a run."""

    renamed = {"right_p_falls": "correct_p_falls", "right_share_below": "correct_share_below"}

    correct_p_falls: float | None = Field(None, ge=0, le=1)
    """Largest allowed fall of the mean p of correct responses, from the first ``window`` steps to
    the latest ``window`` steps; p = exp(mean log-prob of a response's tokens)."""
    correct_share_below: float | None = Field(None, ge=0, le=1)
    """Lowest allowed share of correct responses in the last ``window`` steps."""
    skipped_steps: int | None = Field(None, gt=0)
    """The run ends when this many of its steps were skipped for overflow."""
    window: int = Field(20, gt=0)
    """Steps over which p and the share are averaged. Their rules need twice as many steps."""


def read_steps(path: Path) -> list[dict[str, Any]]:
    """Return the parsed lines of metrics.jsonl, without an incomplete last one; [] if no file."""
    return whole_lines(path, "The disk or a person changed it: delete the folder to train again.")


def reason_to_stop(records: Sequence[dict[str, Any]], rules: Stop) -> str | None:
    """Apply the rules to the steps so far; return the reason to stop as a sentence, or None.

    Args:
        records: Lines of metrics.jsonl for all steps so far.
        rules: The rules that end a run.
    """
    last = records[-1]
    step = f"step {last['step']}: "
    if not math.isfinite(last["loss"]):
        return (
            f"{step}the loss is {last['loss']}. Lower the learning rate, or inspect the step's "
            "rows in data_order.json."
        )
    skipped = skipped_steps(records)
    if rules.skipped_steps is not None and skipped >= rules.skipped_steps:
        return f"{step}{skipped} steps were skipped for overflow (stop_if.skipped_steps)."
    if len(records) < 2 * rules.window:
        return None
    first, latest = records[: rules.window], records[-rules.window :]
    before, now = mean_p(first, "correct"), mean_p(latest, "correct")
    falls = rules.correct_p_falls
    if falls is not None and before is not None and now is not None and now < before - falls:
        return (
            f"{step}mean p of correct responses fell from {before:.4f} to {now:.4f}, by more than "
            f"{falls:g} (stop_if.correct_p_falls)."
        )
    share = correct_share(latest)
    least = rules.correct_share_below
    if least is not None and share is not None and share < least:
        return (
            f"{step}{share:.1%} of the responses of the last {rules.window} steps are correct, "
            f"fewer than {least:.1%} (stop_if.correct_share_below)."
        )
    return None


def skipped_steps(records: Sequence[dict[str, Any]]) -> int:
    """Count the steps that were skipped for overflow."""
    return sum(record.get("overflow", 0) for record in records)


def _responses(records: Sequence[dict[str, Any]], kind: str) -> int:
    return sum(record.get(f"{kind}_count", 0) for record in records)


def mean_p(records: Sequence[dict[str, Any]], kind: str) -> float | None:
    """Return the mean p of correct (or incorrect) responses in some steps; None if there are none.

    Args:
        records: Lines of metrics.jsonl.
        kind: ``correct`` or ``incorrect``.
    """
    count = _responses(records, kind)
    if not count:
        return None
    total = sum(record[f"{kind}_count"] * (record[f"{kind}_p"] or 0.0) for record in records)
    return float(total / count)


def correct_share(records: Sequence[dict[str, Any]]) -> float | None:
    """Compute the share of correct responses in some steps; None if there are no responses."""
    correct = _responses(records, "correct")
    count = correct + _responses(records, "incorrect")
    return correct / count if count else None
