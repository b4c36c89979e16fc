"""Fills rows from a histogram of segment lengths; only the length of a segment matters.

    histogram {700: 2, 300: 2, 200: 1}, rows of 1000 tokens
    -> patterns [([700, 300], 2), ([200], 1)]: the lengths in a row, and the number of such rows

Segments of equal length are interchangeable, so a row that is found once is repeated as often as
its lengths are left. There are at most as many distinct lengths as tokens in a row, however many
segments there are.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Histogram = npt.NDArray[np.int64]
"""[seq_length + 1] number of segments per length; no segment has length 0."""
Pattern = tuple[list[int], int]
"""The lengths in a row, and the number of rows with these lengths."""

_TRIPLE_TRIES = 32
"""Candidates for the third segment that are tried to close a row with three segments."""


@dataclass(frozen=True)
class FillStrategy:
    """A strategy for filling rows.

    Longest first alone would leave segments of nearly equal length, and no number of these fills a
    row. So towards the end, lengths are drawn at random from all segments that are left.

    Args:
        drawn_below: Drawing starts once no segment left is longer than this share of a row.
        drawn_rows: It also requires that the tokens left fit into this many rows; None to drop
            this condition.
        slack: A single segment may close a row if it leaves at most this share of the row empty.
    """

    drawn_below: float = 1 / 3
    drawn_rows: int | None = 3000
    slack: float = 0.0


FILL_STRATEGIES = (
    FillStrategy(),
    # With few short segments, exact pairs use up those that should go beside long segments.
    FillStrategy(slack=1 / 2048),
    # Where most segments are longer than a third of a row, three of the shorter ones must meet in a
    # row. The best length at which to start drawing depends on the distribution of the lengths.
    *(FillStrategy(1 / share, None, 1 / 128) for share in (2.3, 2.36, 2.33, 2.28, 1.8)),
)


def fewest_rows(
    histogram: Histogram, seq_length: int, max_segments: int, bound: int
) -> list[Pattern]:
    """Fill rows by all FILL_STRATEGIES and by best-fit decreasing; return the fewest rows.

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
    """Count the rows that the patterns stand for."""
    return sum(times for _, times in patterns)


class _Left:
    """The number of segments left per length, with bit maps that answer in one operation.

    Bit l of ``present`` and bit (capacity − l) of ``mirrored`` are set while length l is left. So
    one shift and one AND find every pair of lengths with a given sum. ``below`` leads from each
    length to the next shorter one that is left (a union-find: lengths are only ever removed).
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
        """Remove segments for now; ``largest`` ignores this until they are taken."""
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
        """Take a row's lengths as often as they are all left; return the number of times."""
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
        """Return the largest length left that is at most ``limit``; 0 when there is none."""
        below, found = self.below, limit
        while below[found] != found:
            found = below[found]
        while limit != found:
            below[limit], limit = found, below[limit]
        return found

    def mix(self) -> None:
        """Let ``draw`` draw from all segments left from now on, in a fixed random order."""
        rest = np.repeat(np.arange(self.capacity + 1), self.counts)
        self.drawn = np.random.Generator(np.random.PCG64(0)).permutation(rest).tolist()

    def draw(self, free_tokens: int) -> int:
        """Return a length for a row that cannot be closed yet; 0 when none fits."""
        while self.drawn:
            length = self.drawn[-1]
            if self.counts[length] and length > free_tokens:
                break
            self.drawn.pop()
            if self.counts[length]:
                return length
        return self.largest(free_tokens)

    def pair(self, total: int) -> tuple[int, int] | None:
        """Return two lengths left with this sum, as equal as possible: short ones are scarce."""
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
        """Return three lengths left with this sum, the shortest as long as possible; or nothing."""
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
        """Return at most three lengths left that fill ``free_tokens``; empty if none are found."""
        longest = self.largest(free_tokens)
        if longest and free_tokens - longest <= slack:
            return (longest,)
        # For most rows far from full: no segments left are long enough to close them.
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
    """Pack longest first, and close rows exactly where one to three lengths can do it.

    Args:
        histogram: The lengths to pack.
        seq_length: Tokens per row.
        max_segments: Limit on the segments per row.
        strategy: When drawing starts, and how exactly a single segment must close a row.
    """
    left = _Left(histogram, seq_length)
    patterns = []
    longest, drawn = left.largest(seq_length), False
    max_tokens = None if strategy.drawn_rows is None else strategy.drawn_rows * seq_length
    slack = int(strategy.slack * seq_length)
    while longest:
        if not drawn and longest <= strategy.drawn_below * seq_length:
            drawn = max_tokens is None or left.tokens <= max_tokens
            if drawn:
                left.mix()
        row = _fill_row(left, seq_length, max_segments, slack)
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
    """Pack longest first, each segment into the fullest row that has enough free tokens.

    Args and returns as in exact_fill.
    """
    open_rows: dict[int, list[Pattern]] = {}
    free_bits = 0  # bit r: a row with r free tokens takes more
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
