"""When a run is to end before its last step: rules over the lines of metrics.jsonl.

Cheap to import: the recipe's own settings are checked with it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from pydantic import Field

from pcl_reasoner.core.stage import StageConfig

STOPPED = "stopped.txt"
"""Beside metrics.jsonl: why a run was stopped."""


class Stop(StageConfig):
    """What ends a run; what is left out does not. A loss that is not finite always does."""

    renamed = {
        "right_p_falls": "correct_p_falls",
        "right_share_below": "correct_share_below",
    }

    correct_p_falls: float | None = Field(None, ge=0, le=1)
    """Mean p of correct responses falls by more than this, from the first steps to the last."""
    correct_share_below: float | None = Field(None, ge=0, le=1)
    """Share of correct responses in the last steps."""
    skipped_steps: int | None = Field(None, gt=0)
    """So many steps were skipped for overflow, in all."""
    window: int = Field(20, gt=0)
    """How many steps are the first, and the last, ones."""


def reason_to_stop(records: Sequence[dict[str, Any]], rules: Stop) -> str | None:
    """Why the run ends with its last step, in a sentence, or None.

    Args:
        records: Lines of metrics.jsonl, all steps so far.
        rules: What ends a run.
    """
    last = records[-1]
    at = f"step {last['step']}: "
    if not math.isfinite(last["loss"]):
        return (
            f"{at}the loss is {last['loss']}. Lower the learning rate, or look at the step's rows "
            "in data_order.json."
        )
    skipped = sum(record.get("overflow", 0) for record in records)
    if rules.skipped_steps is not None and skipped >= rules.skipped_steps:
        return f"{at}{skipped} steps were skipped for overflow (stop_if.skipped_steps)."
    if len(records) < 2 * rules.window:
        return None
    first, latest = records[: rules.window], records[-rules.window :]
    before, now = mean_p(first, "correct"), mean_p(latest, "correct")
    falls = rules.correct_p_falls
    if falls is not None and before is not None and now is not None and now < before - falls:
        return (
            f"{at}mean p of correct responses fell from {before:.4f} to {now:.4f}, by more than "
            f"{falls:g} (stop_if.correct_p_falls)."
        )
    share = correct_share(latest)
    least = rules.correct_share_below
    if least is not None and share is not None and share < least:
        return (
            f"{at}{share:.1%} of the responses of the last {rules.window} steps are correct, fewer "
            f"than {least:.1%} (stop_if.correct_share_below)."
        )
    return None


def mean_p(records: Sequence[dict[str, Any]], kind: str) -> float | None:
    """Mean p over the responses of some steps; None where there is none.

    Args:
        records: Lines of metrics.jsonl.
        kind: ``correct`` or ``incorrect``.
    """
    count = sum(record.get(f"{kind}_count", 0) for record in records)
    if not count:
        return None
    total = sum(record[f"{kind}_count"] * (record[f"{kind}_p"] or 0.0) for record in records)
    return float(total / count)


def correct_share(records: Sequence[dict[str, Any]]) -> float | None:
    """Share of correct responses among those of some steps; None where there are none."""
    correct, incorrect = (
        sum(record.get(f"{kind}_count", 0) for record in records)
        for kind in ("correct", "incorrect")
    )
    return float(correct / (correct + incorrect)) if correct + incorrect else None
