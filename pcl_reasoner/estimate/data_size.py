"""Computes segments, rows and steps of training from the recipe's numbers, without its data.

{"segments": 666000, "segment_tokens": 8169, "rows": 166049, "steps_per_epoch": 1297, …}
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pcl_reasoner.core.errors import InputError
from pcl_reasoner.estimate.time_estimate import Rows
from pcl_reasoner.train.config import TrainConfig
from pcl_reasoner.train.sizes import derived_sizes

EXACT_FILL, NEXT_FIT_FILL = 0.9999, 0.80
"""Shares of a row that are not padding, as measured in docs/walk/packing.md."""
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
    def saved(self) -> int:
        """Rows per epoch that packing saves."""
        return self.rows_before - self.rows

    def as_rows(self) -> Rows:
        """Segment length and fill of the rows."""
        return Rows(self.segment_tokens, min(1.0, self.tokens / (self.rows * self.row_tokens)))


def data_size(
    published: Mapping[str, Any],
    train: TrainConfig,
    one_segment_per_row: bool,
    segments: int | None = None,
    segment_tokens: float | None = None,
) -> DataSize:
    """Work out rows and steps.

    Args:
        published: The recipe's ``published`` block.
        train: The settings of the train stage.
        one_segment_per_row: The setting of the pack stage.
        segments: The user's number in place of the published one; None for the published one.
        segment_tokens: The user's mean; None to derive it from the published numbers.

    Raises:
        InputError: The number of segments is neither given nor published, or a mean segment is
            longer than a row.
    """
    counts = published_counts(published)
    notes: list[str] = []
    published_rows = counts.pop("pack", None)
    stage, published_segments = list(counts.items())[-1] if counts else ("", None)
    row_tokens = train.seq_length
    if segment_tokens is None:
        segment_tokens, note = _mean(published_segments, published_rows, row_tokens)
        notes.append(note)
    if segments is not None:
        published_rows = None  # they hold other segments
    elif published_segments is None:
        raise InputError("the recipe publishes no number of responses. Give it with --segments.")
    else:
        segments = published_segments
        notes.append(f"segments: published, after {stage}")
    if segment_tokens > row_tokens:
        raise InputError(
            f"--segment-tokens {segment_tokens:g}: longer than a row, which has {row_tokens:,} "
            "tokens. Longer segments are not trained on; give the mean of the others."
        )
    rows = before = segments
    if not one_segment_per_row:
        rows, before = (
            _exact_fill(segments * segment_tokens, row_tokens),
            published_rows or segments,
        )
        compared = ", compared with the published rows" if published_rows else ""
        notes.append(f"rows: by exact fill, 99.99 % full{compared}")
    return DataSize(
        segments=segments,
        segment_tokens=segment_tokens,
        rows=rows,
        rows_before=before,
        row_tokens=row_tokens,
        global_rows=train.global_batch_size,
        epochs=train.epochs,
        steps=max(1, derived_sizes(train, rows).steps),
        notes=tuple(notes),
    )


def packed_instead(size: DataSize) -> int:
    """Rows per epoch that packing by exact fill needs."""
    return _exact_fill(size.tokens, size.row_tokens)


def _exact_fill(tokens: float, row_tokens: int) -> int:
    return math.ceil(tokens / (row_tokens * EXACT_FILL))


def _mean(segments: int | None, rows: int | None, row_tokens: int) -> tuple[float, str]:
    """Mean tokens per segment from published counts, and its source."""
    if rows is None or segments is None:
        source = f"ASSUMED, {ASSUMED_SHARE:.0%} of a row; set it with --segment-tokens"
        return ASSUMED_SHARE * row_tokens, f"tokens per segment: {source}"
    source = f"from {rows:,} published rows, assumed {NEXT_FIT_FILL:.0%} full, as by next-fit"
    return rows * row_tokens * NEXT_FIT_FILL / segments, f"tokens per segment: {source}"


def published_counts(published: Mapping[str, Any]) -> dict[str, int]:
    """Read a recipe's ``published.funnel``: each stage and its last number.

    ``25 909 x 8`` is a product, and ``a + b`` is a sum. ``666 K`` counts thousands. From
    ``30 215, then 27 174`` the last number is taken.
    """
    funnel: Sequence[Mapping[str, Any]] = published.get("funnel") or ()
    return {
        str(line["stage"]): count
        for line in funnel
        if (count := _number(str(line["count"]))) is not None
    }


def _number(text: str) -> int | None:
    """The number that a count ends with; None if it has no digits."""
    last = text.rpartition(",")[2]
    terms = re.findall(r"(\d[\d ]*)(K\b)?", last)
    if not terms:
        return None
    values = [int(digits.replace(" ", "")) * (1000 if kilo else 1) for digits, kilo in terms]
    if "+" in last:
        return sum(values)
    return math.prod(values) if "x" in last else values[-1]
