"""Fills rows from a histogram of segment lengths; only the length of a segment matters.

    histogram {700: 2, 300: 2, 200: 1}, rows of 1000 tokens
    -> patterns [([700, 300], 2), ([200], 1)]: the lengths in a row, and the number of such rows

Segments of equal length are interchangeable. So a row, once found, is repeated as long as segments
of its lengths are left. However many segments there are, they have at most as many distinct lengths
as a row has tokens.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Histogram = npt.NDArray[np.int64]
"""[seq_length + 1] number of segments per length; no segment has length 0."""
Pattern = tuple[list[int], int]
"""The lengths in a row, and the number of rows with these lengths."""

_TRIPLE_TRIES = 32
"""When three segments are to fill a row, at most this many lengths are tried as the third."""


@dataclass(frozen=True)
class FillStrategy:
    """A strategy for filling rows.

    Packing the longest segments first would finally leave only segments of nearly equal length,
    which do not fill rows well. So towards the end, the next segment is drawn at random.

    Args:
        drawn_below: Random drawing starts once no remaining segment exceeds this share of a row.
        drawn_rows: A second condition for drawing: the remaining tokens fit into this many rows;
            ``inf`` for no such condition.
        slack: A single segment may close a row if it leaves at most this share of the row empty.
    """

    drawn_below: float = 1 / 3
    drawn_rows: float = 3000
    slack: float = 0.0

    def begins_drawing(self, longest: int, tokens: int, seq_length: int) -> bool:
        """Whether random drawing may start: remaining segments are short and have few tokens."""
        short = longest <= self.drawn_below * seq_length
        return short and tokens <= self.drawn_rows * seq_length


FILL_STRATEGIES = (
    FillStrategy(),
    # If short segments are few, exact pairs would use up those that long segments need.
    FillStrategy(slack=1 / 2048),
    # If most segments are longer than a third of a row, three fit into one row only if they are
    # short. The best length at which to start drawing depends on the distribution of the lengths.
    *(FillStrategy(1 / share, math.inf, 1 / 128) for share in (2.3, 2.36, 2.33, 2.28, 1.8)),
)


def fewest_rows(
    histogram: Histogram, seq_length: int, max_segments: int, bound: int
) -> list[Pattern]:
    """Try all FILL_STRATEGIES and best-fit decreasing; return the result with the fewest rows.

    Args:
        histogram: The lengths to pack.
        seq_length: Tokens per row.
        max_segments: Limit on the segments per row.
        bound: Lower bound on the number of rows; the first result that reaches it is returned.
    """
    tried = []
    for strategy in FILL_STRATEGIES:
        found = exact_fill(histogram, seq_length, max_segments, strategy)
        if row_count(found) == bound:
            return found
        tried.append(found)
    return min(*tried, best_fit_decreasing(histogram, seq_length, max_segments), key=row_count)


def row_count(patterns: list[Pattern]) -> int:
    """Return the number of rows, counting each pattern as often as it is repeated."""
    return sum(times for _, times in patterns)


class _Left:
    """The number of remaining segments per length, with bit maps for fast searches.

    Bit l of ``present`` and bit (capacity − l) of ``mirrored`` are set while length l remains. So
    one shift and one AND find every pair of lengths with a given sum. ``below`` leads from each
    length to the next shorter one that remains (a union-find, as lengths are only removed).
    """

    def __init__(self, histogram: Histogram, capacity: int) -> None:
        self.counts: list[int] = histogram.tolist()
        self.capacity = capacity
        self.present = _bits(histogram > 0)
        self.mirrored = _bits(histogram[::-1] > 0)
        lengths = np.arange(capacity + 1)
        self.tokens = int((histogram * lengths).sum())
        self.below: list[int] = np.maximum.accumulate(np.where(histogram > 0, lengths, 0)).tolist()
        self.drawn: list[int] = []

    def _flip(self, length: int) -> None:
        self.present ^= 1 << length
        self.mirrored ^= 1 << (self.capacity - length)

    def set_aside(self, length: int, times: int = 1) -> None:
        """Remove segments for now; ``largest`` still finds them until ``take`` is called."""
        self.counts[length] -= times
        if self.counts[length] == 0:
            self._flip(length)

    def put_back(self, length: int) -> None:
        """Undo set_aside for one segment."""
        if self.counts[length] == 0:
            self._flip(length)
        self.counts[length] += 1

    def take(self, length: int, times: int = 1) -> None:
        """Remove segments for good."""
        self.set_aside(length, times)
        self.tokens -= length * times
        if self.counts[length] == 0:
            self.below[length] = length - 1

    def take_repeatedly(self, row: list[int]) -> int:
        """Repeat a row as often as the remaining segments allow; return the number of repeats."""
        if not (self.counts[row[0]] and self.counts[row[-1]]):
            return 0
        uses: dict[int, int] = {}  # three times as fast as a Counter of this size
        for length in row:
            uses[length] = uses.get(length, 0) + 1
        times = min(self.counts[length] // number for length, number in uses.items())
        if times:
            for length, number in uses.items():
                self.take(length, number * times)
        return times

    def largest(self, limit: int) -> int:
        """Return the largest remaining length that is at most ``limit``; 0 when there is none."""
        below, found = self.below, limit
        while below[found] != found:
            found = below[found]
        while limit != found:
            below[limit], limit = found, below[limit]
        return found

    def mix(self) -> None:
        """Put all remaining segments into a random order, the same in every run, for ``draw``."""
        rest = np.repeat(np.arange(self.capacity + 1), self.counts)
        self.drawn = np.random.Generator(np.random.PCG64(0)).permutation(rest).tolist()

    def draw(self, free_tokens: int) -> int:
        """Return the next length in random order if it fits, else the longest that fits, else 0."""
        while self.drawn:
            length = self.drawn[-1]
            if self.counts[length] and length > free_tokens:
                break
            self.drawn.pop()
            if self.counts[length]:
                return length
        return self.largest(free_tokens)

    def pair(self, total: int) -> tuple[int, int] | None:
        """Return two remaining lengths with this sum, as nearly equal as possible, or None."""
        half = total // 2
        start = total - half
        sums = (self.mirrored >> (self.capacity - half)) & (self.present >> start)
        if sums & 1 and half == start and self.counts[half] == 1:
            sums ^= 1
        if sums == 0:
            return None
        apart = _lowest_bit(sums)
        return start + apart, half - apart

    def triple(self, total: int) -> tuple[int, ...]:
        """Return three remaining lengths with this sum, the third as long as possible; or ()."""
        third = self.largest(total // 3)
        for _ in range(_TRIPLE_TRIES):
            if third == 0:
                break
            self.set_aside(third)
            found = self.pair(total - third)
            self.put_back(third)
            if found is not None:
                return (*found, third)
            third = self.largest(third - 1)
        return ()

    def closing(self, free_tokens: int, segments_left: int, slack: int) -> tuple[int, ...]:
        """Return one to three remaining lengths that fill ``free_tokens``; () if none are found.

        A single length may leave up to ``slack`` tokens free; two or three fill them exactly.
        """
        longest = self.largest(free_tokens)
        if longest and free_tokens - longest <= slack:
            return (longest,)
        # Most rows that are far from full end here: three segments would not fill them.
        if longest * min(segments_left, 3) < free_tokens:
            return ()
        may_pair = 2 * longest >= free_tokens and segments_left >= 2
        found = (self.pair(free_tokens) if may_pair else None) or ()
        return found or (self.triple(free_tokens) if segments_left >= 3 else ())


def _bits(mask: npt.NDArray[np.bool_]) -> int:
    return int.from_bytes(np.packbits(mask, bitorder="little").tobytes(), "little")


def _lowest_bit(bits: int) -> int:
    return (bits ^ (bits - 1)).bit_length() - 1


def exact_fill(
    histogram: Histogram,
    seq_length: int,
    max_segments: int,
    strategy: FillStrategy = FILL_STRATEGIES[0],
) -> list[Pattern]:
    """Pack the longest segments first; close a row once one to three lengths can fill it.

    Args:
        histogram: The lengths to pack.
        seq_length: Tokens per row.
        max_segments: Limit on the segments per row.
        strategy: When random drawing starts, and how much a closing segment may leave free.
    """
    left = _Left(histogram, seq_length)
    patterns = []
    longest, drawn = left.largest(seq_length), False
    while longest:
        if not drawn and strategy.begins_drawing(longest, left.tokens, seq_length):
            drawn = True
            left.mix()
        row = _fill_row(left, seq_length, max_segments, int(strategy.slack * seq_length))
        patterns.append((row, 1 + left.take_repeatedly(row)))
        longest = left.largest(longest)
    return patterns


def _fill_row(left: _Left, seq_length: int, max_segments: int, slack: int) -> list[int]:
    row: list[int] = []
    free_tokens = seq_length
    while free_tokens > 0 and len(row) < max_segments:
        closing = left.closing(free_tokens, max_segments - len(row), slack) if row else ()
        chosen = closing or (left.draw(free_tokens),)
        if chosen == (0,):
            break
        for length in chosen:
            left.take(length)
            free_tokens -= length
        row.extend(chosen)
    return row


def best_fit_decreasing(histogram: Histogram, seq_length: int, max_segments: int) -> list[Pattern]:
    """Pack the longest segments first, each into the fullest row with enough free tokens.

    The arguments and the result are those of exact_fill.
    """
    open_rows: dict[int, list[Pattern]] = {}
    free_bits = 0  # bit r: there is an open row with r free tokens
    closed: list[Pattern] = []
    for length in np.flatnonzero(histogram)[::-1].tolist():
        left = int(histogram[length])
        while left:
            fitting = free_bits >> length
            free_tokens = length + _lowest_bit(fitting) if fitting else seq_length
            row, rows = open_rows[free_tokens].pop() if fitting else ([], left)
            # The row just filled is now the fullest, so it takes the next segment, too.
            copies = min(free_tokens // length, max_segments - len(row), left)
            repeats = min(rows, left // copies)
            left -= repeats * copies
            if fitting and repeats < rows:
                open_rows[free_tokens].append((row, rows - repeats))
            elif fitting and not open_rows[free_tokens]:
                free_bits ^= 1 << free_tokens
            row, free_tokens = row + [length] * copies, free_tokens - length * copies
            if free_tokens > 0 and len(row) < max_segments:
                open_rows.setdefault(free_tokens, []).append((row, repeats))
                free_bits |= 1 << free_tokens
            else:
                closed.append((row, repeats))
    return closed + [pattern for patterns in open_rows.values() for pattern in patterns]
