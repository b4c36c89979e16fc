"""Rows filled from a histogram of lengths: what matters of a segment is its length alone.

    histogram {700: 2, 300: 2, 200: 1}, rows of 1000 tokens
    -> patterns [([700, 300], 2), ([200], 1)]: lengths of a row, and how many rows are alike

Segments of one length are interchangeable, so a row that is found once is taken as often as its
lengths last. There are no more lengths than tokens in a row, however many segments there are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Histogram = npt.NDArray[np.int64]
"""[seq_length + 1] segments of each length; none has length 0."""
Pattern = tuple[list[int], int]
"""Lengths of a row, and the number of rows like it."""

_TRIPLE_TRIES = 32
"""Third segments that are tried when a row is to be closed by three."""


@dataclass(frozen=True)
class Way:
    """How rows are filled.

    Longest first alone would leave segments of nearly one length, of which no number fills a row.
    So in the end lengths are drawn from all that are left.

    Args:
        drawn_below: Lengths are drawn once none is longer than this share of a row,
        drawn_rows: and no more tokens are left than so many rows have; None: however many.
        slack: A row may be closed by a single segment this share of it too short.
    """

    drawn_below: float = 1 / 3
    drawn_rows: int | None = 3000
    slack: float = 0.0


WAYS = (
    Way(),
    # Where hardly anything is short, exact pairs use up what should go beside long segments.
    Way(slack=1 / 2048),
    # Where most segments are longer than a third of a row, three of the shorter ones must find each
    # other. From where on they are best drawn depends on the shape of the lengths.
    *(Way(1 / share, None, 1 / 128) for share in (2.3, 2.36, 2.33, 2.28, 1.8)),
)


def fewest_rows(
    histogram: Histogram, seq_length: int, max_segments: int, bound: int
) -> list[Pattern]:
    """Fill rows in every way, and by best-fit decreasing, and take what has the fewest.

    Args:
        histogram: What is to be packed.
        seq_length: Tokens a row.
        max_segments: Segments a row at most.
        bound: Rows that no packing goes below; the first way that reaches it is taken.
    """
    tried = []
    for way in WAYS:
        found = exact_fill(histogram, seq_length, max_segments, way)
        if row_count(found) == bound:
            return found
        tried.append(found)
    return min(*tried, best_fit_decreasing(histogram, seq_length, max_segments), key=row_count)


def row_count(patterns: list[Pattern]) -> int:
    """Rows that patterns stand for."""
    return sum(times for _, times in patterns)


class _Left:
    """How many segments of each length are left, with bit maps that answer in one operation.

    Bit l of ``present`` says that length l is left; bit (capacity − l) of ``mirrored`` says the
    same, so that one shift and one AND find every pair of lengths with a given sum. ``below`` leads
    from each length to the next shorter one that is left (a union-find: lengths only vanish).
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
        """Use segments for now; ``largest`` does not look until they are taken."""
        self.counts[length] -= times
        if self.counts[length] == 0:
            self._flip(length)

    def put_back(self, length: int) -> None:
        """Undo set_aside of one."""
        if self.counts[length] == 0:
            self._flip(length)
        self.counts[length] += 1

    def take(self, length: int, times: int = 1) -> None:
        """Use segments."""
        self.set_aside(length, times)
        self.tokens -= length * times
        if self.counts[length] == 0:
            self.below[length] = length - 1

    def take_again(self, row: list[int]) -> int:
        """Take a row's lengths once more, and again, while all are left; returns how often."""
        if not (self.counts[row[0]] and self.counts[row[-1]]):
            return 0
        uses: dict[int, int] = {}  # three times as fast as a Counter of so few
        for length in row:
            uses[length] = uses.get(length, 0) + 1
        times = min(self.counts[length] // number for length, number in uses.items())
        if times:
            for length, number in uses.items():
                self.take(length, number * times)
        return times

    def largest(self, limit: int) -> int:
        """The largest length left that is at most ``limit``; 0 when there is none."""
        below, found = self.below, limit
        while below[found] != found:
            found = below[found]
        while limit != found:
            below[limit], limit = found, below[limit]
        return found

    def mix(self) -> None:
        """From now on ``draw`` draws from all that is left, in a fixed random order."""
        rest = np.repeat(np.arange(self.capacity + 1), self.counts)
        self.drawn = np.random.Generator(np.random.PCG64(0)).permutation(rest).tolist()

    def draw(self, room: int) -> int:
        """A length for a row that cannot be closed yet; 0 when none fits."""
        while self.drawn:
            length = self.drawn[-1]
            if self.counts[length] and length > room:
                break
            self.drawn.pop()
            if self.counts[length]:
                return length
        return self.largest(room)

    def pair(self, total: int) -> tuple[int, int] | None:
        """Two lengths left that add up to ``total``, as equal as can be: small ones are scarce."""
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
        """Three lengths left that add up to ``total``, the shortest as long as can be."""
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

    def closing(self, room: int, places: int, slack: int) -> tuple[int, ...]:
        """At most three lengths left that fill the room; empty when none are found."""
        longest = self.largest(room)
        if longest and room - longest <= slack:
            return (longest,)
        # Most rows far from full end here: nothing left is long enough to close them.
        if longest * min(places, 3) < room:
            return ()
        found = self.pair(room) if 2 * longest >= room and places >= 2 else None
        if found is not None or places < 3:
            return found or ()
        return self.triple(room)


def _bits(mask: npt.NDArray[np.bool_]) -> int:
    return int.from_bytes(np.packbits(mask, bitorder="little").tobytes(), "little")


def _lowest_bit(bits: int) -> int:
    return (bits ^ (bits - 1)).bit_length() - 1


def exact_fill(
    histogram: Histogram, seq_length: int, max_segments: int, way: Way = WAYS[0]
) -> list[Pattern]:
    """Pack largest first, closing rows exactly where one to three lengths can.

    Args:
        histogram: What is to be packed.
        seq_length: Tokens a row.
        max_segments: Segments a row at most.
        way: From where on lengths are drawn, and how exactly one segment closes a row.
    """
    left = _Left(histogram, seq_length)
    patterns = []
    longest, drawn = left.largest(seq_length), False
    most = None if way.drawn_rows is None else way.drawn_rows * seq_length
    slack = int(way.slack * seq_length)
    while longest:
        if not drawn and longest <= way.drawn_below * seq_length:
            drawn = most is None or left.tokens <= most
            if drawn:
                left.mix()
        row = _fill_row(left, seq_length, max_segments, slack)
        patterns.append((row, 1 + left.take_again(row)))
        longest = left.largest(longest)
    return patterns


def _fill_row(left: _Left, seq_length: int, max_segments: int, slack: int) -> list[int]:
    row: list[int] = []
    room = seq_length
    while room > 0 and len(row) < max_segments:
        closing = left.closing(room, max_segments - len(row), slack) if row else ()
        chosen = closing or (left.draw(room),)
        if chosen == (0,):
            break
        for length in chosen:
            left.take(length)
            room -= length
        row.extend(chosen)
    return row


def best_fit_decreasing(histogram: Histogram, seq_length: int, max_segments: int) -> list[Pattern]:
    """Pack longest first, each into the row with the least room that is enough.

    Args and returns as exact_fill.
    """
    open_rows: dict[int, list[Pattern]] = {}
    rooms = 0  # bit r: a row with room r takes more
    closed: list[Pattern] = []
    for length in np.flatnonzero(histogram)[::-1].tolist():
        left = int(histogram[length])
        while left:
            enough = rooms >> length
            room = length + _lowest_bit(enough) if enough else seq_length
            row, rows = open_rows[room].pop() if enough else ([], left)
            # The row just filled has the least room, so it takes the next one too.
            each = min(room // length, max_segments - len(row), left)
            alike = min(rows, left // each)
            left -= alike * each
            if enough and alike < rows:
                open_rows[room].append((row, rows - alike))
            elif enough and not open_rows[room]:
                rooms ^= 1 << room
            row, room = row + [length] * each, room - length * each
            if room > 0 and len(row) < max_segments:
                open_rows.setdefault(room, []).append((row, alike))
                rooms |= 1 << room
            else:
                closed.append((row, alike))
    return closed + [pattern for same in open_rows.values() for pattern in same]
