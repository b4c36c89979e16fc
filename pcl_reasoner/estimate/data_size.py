"""Computes segments, rows and steps of training from the recipe's numbers, without its data.

{"segments": 666000, "segment_tokens": 8169, "rows": 166049, "steps_per_epoch": 1297, …}
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pcl_reasoner.core.errors import InputError
from pcl_reasoner.estimate.time_estimate import Rows

EXACT_FILL, NEXT_FIT_FILL = 0.9999, 0.80
"""Shares of a row that are not padding, as measured in docs/packing.md."""
ASSUMED_SHARE = 0.4
"""Assumed share of a row that a segment fills, if no mean length is given or published."""


@dataclass(frozen=True)
class DataSize:
    """Size of the training data.

    Args:
        segments: Responses.
        segment_tokens: Mean tokens of a segment, its prompt included.
        rows: Rows per epoch.
        rows_before: Rows per epoch that ``rows`` is compared with: the published rows, packed by
            next-fit; without them, or with ``one_segment_per_row``, one row per segment.
        row_tokens: Tokens per row, padding included.
        global_rows: Rows per optimizer step.
        epochs: Passes over the rows.
        steps: Optimizer steps in all, at most the recipe's ``max_steps``.
        notes: The source of each number.
    """

    segments: int
    segment_tokens: float
    rows: int
    rows_before: int
    row_tokens: int
    global_rows: int
    epochs: int
    steps: int
    notes: tuple[str, ...]

    @property
    def tokens(self) -> int:
        """Tokens of all segments, per epoch."""
        return round(self.segments * self.segment_tokens)

    @property
    def steps_per_epoch(self) -> float:
        """Rows divided by rows per step; the remainder goes into the next epoch."""
        return self.rows / self.global_rows

    @property
    def saved(self) -> int:
        """Rows per epoch that packing saves."""
        return self.rows_before - self.rows

    def as_rows(self) -> Rows:
        """Segment length and fill of the rows."""
        return Rows(self.segment_tokens, min(1.0, self.tokens / (self.rows * self.row_tokens)))


def data_size(
    published: Mapping[str, Any],
    pack: Mapping[str, Any],
    train: Mapping[str, Any],
    segments: int | None = None,
    segment_tokens: float | None = None,
) -> DataSize:
    """Work out rows and steps.

    Args:
        published: The recipe's ``published`` block.
        pack: ``seq_length`` and ``one_segment_per_row`` of the pack stage.
        train: ``global_batch_size``, ``epochs`` and ``max_steps`` of the train stage.
        segments: The user's number in place of the published one; None for the published one.
        segment_tokens: The user's mean; None to derive it from the published numbers.

    Raises:
        InputError: The number of segments is neither given nor published, or a mean segment is
            longer than a row.
    """
    counts = published_counts(published)
    notes: list[str] = []
    packed = counts.pop("pack", None)
    stage, known = list(counts.items())[-1] if counts else ("", None)
    row_tokens = pack["seq_length"]
    if segment_tokens is None:
        segment_tokens, note = _mean(known, packed, row_tokens)
        notes.append(note)
    if segments is None:
        if known is None:
            raise InputError(
                "the recipe publishes no counts of responses: say how many, with --segments."
            )
        segments = known
        notes.append(f"segments: published, after {stage}")
    else:
        packed = None  # the published rows hold other segments
    if segment_tokens > row_tokens:
        raise InputError(
            f"--segment-tokens {segment_tokens:g}: a row has {row_tokens:,} tokens, and a longer "
            "segment is never in one. Give the mean of those that are trained on."
        )
    tight = math.ceil(segments * segment_tokens / (row_tokens * EXACT_FILL))
    one_segment_per_row = bool(pack.get("one_segment_per_row"))
    rows, before = (segments, segments) if one_segment_per_row else (tight, packed or segments)
    if not one_segment_per_row:
        notes.append("rows: by exact fill, 99.99 % full" + (", against published" * bool(packed)))
    steps = rows * train["epochs"] // train["global_batch_size"]
    limit = train.get("max_steps")
    return DataSize(
        segments=segments,
        segment_tokens=segment_tokens,
        rows=rows,
        rows_before=before,
        row_tokens=row_tokens,
        global_rows=train["global_batch_size"],
        epochs=train["epochs"],
        steps=max(1, min(steps, limit) if limit else steps),
        notes=tuple(notes),
    )


def packed_instead(size: DataSize) -> int:
    """Rows per epoch that packing by exact fill needs."""
    return math.ceil(size.tokens / (size.row_tokens * EXACT_FILL))


def _mean(segments: int | None, packed: int | None, row_tokens: int) -> tuple[float, str]:
    if packed is not None and segments is not None:
        mean = packed * row_tokens * NEXT_FIT_FILL / segments
        return mean, (
            f"tokens a segment: from {packed:,} published rows, taken as {NEXT_FIT_FILL:.0%} full "
            "as next-fit leaves them"
        )
    mean = ASSUMED_SHARE * row_tokens
    return mean, (
        f"tokens a segment: ASSUMED, {ASSUMED_SHARE:.0%} of a row (--segment-tokens says otherwise)"
    )


def published_counts(published: Mapping[str, Any]) -> dict[str, int]:
    """Read a recipe's ``published.funnel``: each stage and its last number.

    ``25 909 x 8`` is a product, and ``a + b`` is a sum. ``666 K`` counts thousands. From
    ``30 215, then 27 174`` the last number is taken.
    """
    funnel: Sequence[Mapping[str, Any]] = published.get("funnel") or ()
    found = {}
    for line in funnel:
        number = _number(str(line["count"]).rpartition(",")[2])
        if number is not None:
            found[str(line["stage"])] = number
    return found


def _number(text: str) -> int | None:
    terms = re.findall(r"\d[\d ]*(?:\s*K\b)?", text)
    if not terms:
        return None
    values = [
        int(re.sub(r"\D", "", term)) * (1000 if term.rstrip().endswith("K") else 1)
        for term in terms
    ]
    if "+" in text:
        return sum(values)
    return math.prod(values) if "x" in text else values[-1]
