"""Computes segments, rows and steps of training from the recipe's numbers, without its data.

{"segments": 666000, "segment_tokens": 8169, "rows": 166049, "global_rows": 128, …}
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pcl_reasoner.core.errors import InputError
from pcl_reasoner.estimate.time_estimate import Rows
from pcl_reasoner.pack.config import PackConfig
from pcl_reasoner.runner.recipe import Recipe
from pcl_reasoner.runner.stage_spec import StageSpec
from pcl_reasoner.train.config import TrainConfig
from pcl_reasoner.train.sizes import derived_sizes

EXACT_FILL, NEXT_FIT_FILL = 0.9999, 0.80
"""Share of a row that is not padding, with exact fill and next-fit; see docs/walk/packing.md."""
ASSUMED_SHARE = 0.4
"""Assumed share of a row that a segment fills, if no mean length is given or published."""


NOT_COUNTED = (
    "the recipe publishes no number of responses. Give it with --segments, or give the number of "
    "problems with --problems."
)


class OfRecipe(Protocol):
    """A stage with its recipe: one of a plan, or one that is only checked."""

    @property
    def recipe(self) -> Recipe:
        """The recipe."""

    @property
    def spec(self) -> StageSpec:
        """The stage's settings."""


@dataclass(frozen=True)
class DataSize:
    """Size of the training data.

    Args:
        segments: Number of segments; each is one response with its prompt.
        segment_tokens: Mean tokens of a segment, its prompt included.
        rows: Rows per epoch.
        rows_before: Rows per epoch to compare ``rows`` with: the published number (packed by
            next-fit), or one row per segment if none is published or the user gives ``segments``.
            With ``one_segment_per_row`` it equals ``rows``.
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

    def as_rows(self) -> Rows:
        """Mean tokens per segment, and share of a row that is not padding."""
        return Rows(self.segment_tokens, min(1.0, self.tokens / (self.rows * self.row_tokens)))


def data_size(
    planned: OfRecipe, segments: int | None = None, segment_tokens: float | None = None
) -> DataSize:
    """Work out rows and steps of a train stage from the numbers that its recipe publishes.

    Args:
        planned: The train stage.
        segments: The user's number in place of the published one; None for the published one.
        segment_tokens: The user's mean tokens per segment; None to derive it from the published
            numbers.

    Raises:
        InputError: The number of segments is neither given nor published, or their mean length
            is greater than a row's length.
    """
    train = planned.spec.config
    assert isinstance(train, TrainConfig)
    counts = published_counts(planned.recipe.published)
    notes: list[str] = []
    published_rows = counts.pop("pack", None)
    stage, published_segments = list(counts.items())[-1] if counts else ("", None)
    row_tokens = train.seq_length
    if segment_tokens is None:
        segment_tokens, note = _mean(published_segments, published_rows, row_tokens)
        notes.append(note)
    _check_mean(segment_tokens, row_tokens)
    if segments is not None:
        published_rows = None  # these rows contain other segments
    elif published_segments is None:
        raise InputError(NOT_COUNTED)
    else:
        segments = published_segments
        notes.append(f"segments: published, after {stage}")
    rows = before = segments
    if not _one_segment_per_row(planned.recipe):
        rows = exact_fill(segments * segment_tokens, row_tokens)
        before = published_rows or segments
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


def _check_mean(segment_tokens: float, row_tokens: int) -> None:
    if segment_tokens > row_tokens:
        raise InputError(
            f"--segment-tokens {segment_tokens:g}: longer than a row, which has {row_tokens:,} "
            "tokens. Longer segments are not trained on; give the mean of the others."
        )


def _one_segment_per_row(recipe: Recipe) -> bool:
    configs = [spec.config for spec in recipe.stages.values()]
    packs = [config for config in configs if isinstance(config, PackConfig)]
    return bool(packs) and packs[-1].one_segment_per_row


def exact_fill(tokens: float, row_tokens: int) -> int:
    """Estimate the number of rows that packing by exact fill needs."""
    return math.ceil(tokens / (row_tokens * EXACT_FILL))


def _mean(segments: int | None, rows: int | None, row_tokens: int) -> tuple[float, str]:
    """Mean tokens per segment, from published counts or else assumed, and the mean's source."""
    if rows is None or segments is None:
        source = f"ASSUMED, {ASSUMED_SHARE:.0%} of a row; set it with --segment-tokens"
        return ASSUMED_SHARE * row_tokens, f"tokens per segment: {source}"
    source = f"from {rows:,} published rows, assumed {NEXT_FIT_FILL:.0%} full, as by next-fit"
    return rows * row_tokens * NEXT_FIT_FILL / segments, f"tokens per segment: {source}"


def published_counts(published: Mapping[str, Any]) -> dict[str, int]:
    """Return stage -> number of records, from a recipe's ``published.funnel``.

    A number there is a text: ``25 909 x 8`` is a product, ``a + b`` is a sum, and ``666 K`` means
    thousands. In ``30 215, then 27 174`` the part after the comma counts.
    """
    funnel: Sequence[Mapping[str, Any]] = published.get("funnel") or ()
    return {
        str(line["stage"]): count
        for line in funnel
        if (count := _number(str(line["count"]))) is not None
    }


def _number(text: str) -> int | None:
    """Compute the number that a funnel's text means; None if the text has no digits."""
    last = text.rpartition(",")[2]
    terms = re.findall(r"(\d[\d ]*)(K\b)?", last)
    if not terms:
        return None
    values = [int(digits.replace(" ", "")) * (1000 if kilo else 1) for digits, kilo in terms]
    if "+" in last:
        return sum(values)
    return math.prod(values) if "x" in last else values[-1]
