"""The largest uncertainty of each figure of a plan, and what to measure to remove it.

training   29.3 h   16.2 to 69.9 h   share of matrix products   20 steps, then --measured

An assumption is varied within limits that we consider possible; the assumption that moves the
figure most is named. The limits are a judgement, not a measurement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from pcl_reasoner.estimate.chips import Chip
from pcl_reasoner.estimate.data_size import DataSize, exact_fill
from pcl_reasoner.estimate.saves import Run, Waits, waiting

MATRIX_SHARES, LINK_SHARES, MEMORY_SHARES = (0.2, 0.75), (0.3, 0.9), (0.35, 0.9)
"""Lowest and highest possible share of the peak of matrix products, links and memory."""
LENGTHS = (0.5, 1.5)
"""Lowest and highest possible mean length, as a multiple of the assumed one."""
FILE_RATES = (1e9, 10e9)
"""Lowest and highest possible bytes per second of a host's files."""
COMPILES = (162.0, 1205.0)
"""Shortest and longest compile by MindSpore's front end in docs/benchmarks.md, in seconds."""
BY_STEPS = "20 steps in this layout, then plan --measured metrics.jsonl"


@dataclass(frozen=True)
class Spread:
    """What one assumption does to a figure.

    Args:
        cause: The assumption.
        ends: The figure at the assumption's two limits.
        measure: What removes the uncertainty.
    """

    cause: str
    ends: tuple[float, float]
    measure: str

    @property
    def low(self) -> float:
        """The smaller end."""
        return min(self.ends)

    @property
    def high(self) -> float:
        """The larger end."""
        return max(self.ends)


def largest(spreads: Iterable[Spread]) -> Spread | None:
    """The assumption that moves the figure most; None if all is measured or given."""
    return max(spreads, key=lambda one: one.high - one.low, default=None)


def with_shares(chip: Chip, **shares: float) -> Chip:
    """The chip with other shares: ``matrix`` (attention in proportion), ``link``, ``memory``."""
    factor = {name: share / chip.assumed[name] for name, share in shares.items()}
    matrix, link = factor.get("matrix", 1.0), factor.get("link", 1.0)
    return replace(
        chip,
        matrix=chip.matrix * matrix,
        attention=chip.attention * matrix,
        node=chip.node * link,
        network=chip.network * link,
        swap=chip.swap * link,
        memory=chip.memory * factor.get("memory", 1.0),
    )


def with_length(size: DataSize, factor: float) -> DataSize:
    """Data whose segments are longer or shorter, and at most a row long."""
    tokens = min(size.segment_tokens * factor, size.row_tokens)
    if size.rows == size.segments:  # one segment per row
        return replace(size, segment_tokens=tokens)
    rows = exact_fill(size.segments * tokens, size.row_tokens)
    steps = max(1, round(size.steps * rows / size.rows))
    return replace(size, segment_tokens=tokens, rows=rows, steps=steps)


def training_spreads(
    hours: Callable[[Chip, DataSize], float], chip: Chip, size: DataSize, is_length_known: bool
) -> Iterator[Spread]:
    """Yield what each assumption does to the hours of a training.

    Args:
        hours: The hours with another chip or other data.
        chip: The device.
        size: The data.
        is_length_known: Whether the mean length of a segment was given or measured.
    """
    if "matrix" not in chip.measured:
        low, high = (hours(with_shares(chip, matrix=share), size) for share in MATRIX_SHARES)
        yield Spread(f"share of matrix products, {_percent(MATRIX_SHARES)}", (low, high), BY_STEPS)
        low, high = (hours(with_shares(chip, link=share), size) for share in LINK_SHARES)
        yield Spread(f"share of links, {_percent(LINK_SHARES)}", (low, high), BY_STEPS)
    if not is_length_known:
        low, high = (hours(chip, with_length(size, factor)) for factor in LENGTHS)
        cause = f"tokens per segment, x {LENGTHS[0]:g} to {LENGTHS[1]:g}"
        yield Spread(cause, (low, high), "the mean of real segments, then --segment-tokens")


def _percent(shares: tuple[float, float]) -> str:
    return f"{shares[0]:.0%} to {shares[1]:.0%}"


def save_spread(run: Run, chip: Chip, waits: Waits) -> Spread | None:
    """What the rate of files does to the seconds of a save; None if it was measured."""
    if "file_rate" in waits.measured:
        return None

    def seconds(rate: float) -> float:
        return sum(waiting(run, chip, replace(waits, file_rate=rate)).save.values())

    low, high = (seconds(rate) for rate in FILE_RATES)
    cause = f"files, {FILE_RATES[0] / 1e9:g} to {FILE_RATES[1] / 1e9:g} GB/s per host"
    return Spread(cause, (low, high), "one save: `after` in seconds.jsonl, by --measured")


def start_spread(run: Run, waits: Waits) -> Spread | None:
    """What compiling does to the seconds of a start; None if the start was measured."""
    if waits.start_seconds is not None:
        return None
    read = run.folder_bytes / waits.file_rate
    low, high = (seconds + read for seconds in COMPILES)
    cause = f"compile, {COMPILES[0]:g} to {COMPILES[1]:,g} s in MindSpore's front end"
    return Spread(cause, (low, high), "one start: `before` in seconds.jsonl, by --measured")
