"""How much of a benchmark question stands, word for word, in a training problem.

    question  "Ben has 12 books and loses 3"      words: ben has # books and loses #
    4-grams   ben has # books | has # books and | # books and loses | books and loses #
    problem   "Here Ben has 7 books and sells 2"  has the first two: containment 2 / 4 = 0.5

The share is of the question's n-grams, so a question hidden in a long text counts in full.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from pcl_reasoner.contamination.text import NUMBER, words

Gram = tuple[str, ...]


def grams_of(sequence: Sequence[str], size: int) -> Iterator[Gram]:
    """All runs of ``size`` words but those of numbers alone, which say nothing once masked."""
    for start in range(len(sequence) - size + 1):
        gram = tuple(sequence[start : start + size])
        if any(word != NUMBER for word in gram):
            yield gram


class NgramIndex:
    """The n-grams of all benchmark questions, looked up a problem at a time.

    A question shorter than ``size`` words has no n-gram, and most of its words are in any
    problem: it is found only in a problem whose words, numbers unmasked, are exactly its own.

    Args:
        questions: Benchmark questions, templates stripped.
        size: Words an n-gram.
        mask_numbers: True: numbers count as one and the same word.
    """

    def __init__(self, questions: Sequence[str], size: int, mask_numbers: bool) -> None:
        self._size = size
        self._mask_numbers = mask_numbers
        self._holders: dict[Gram, list[int]] = defaultdict(list)
        self._short: dict[Gram, list[int]] = defaultdict(list)
        self._grams: list[int] = []
        for index, question in enumerate(questions):
            self._add(index, question)

    def _add(self, index: int, question: str) -> None:
        grams = set(grams_of(words(question, self._mask_numbers), self._size))
        self._grams.append(len(grams))
        for gram in grams:
            self._holders[gram].append(index)
        whole = tuple(words(question, mask_numbers=False))
        if not grams and whole:
            self._short[whole].append(index)

    def containments(self, text: str, stripped: str) -> dict[int, float]:
        """Share of each question's n-grams that occur in a problem.

        Args:
            text: The problem with whatever surrounds it: a longer text does not lower the share,
                and a question in a system prompt or an earlier answer is found too.
            stripped: The same problem without templates; short questions are compared with it.

        Returns:
            Index of a question -> share in (0, 1]; questions with none are left out.
        """
        found: dict[int, int] = defaultdict(int)
        for gram in set(grams_of(words(text, self._mask_numbers), self._size)):
            for index in self._holders.get(gram, ()):
                found[index] += 1
        shares = {index: count / self._grams[index] for index, count in found.items()}
        whole = tuple(words(stripped, mask_numbers=False)) if self._short else ()
        return shares | dict.fromkeys(self._short.get(whole, ()), 1.0)
