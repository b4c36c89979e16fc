"""How much of a benchmark question stands, word for word, in a training problem.

    question  "Ben has 12 books and loses 3"      words: ben has # books and loses #
    4-grams   ben has # books | has # books and | # books and loses | books and loses #
    problem   "Here Ben has 7 books and sells 2"  has the first two: containment 2 / 4 = 0.5

The share is of the question's n-grams, so a question hidden in a long text counts in full. Only
hashes of n-grams are kept, so that a benchmark can be compared with without its text.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from pcl_reasoner.contamination.text import NUMBER, words

HASH_BYTES = 8
"""Of an n-gram. By chance alone one of 10⁸ n-grams meets one of 10⁴ with a chance of 5·10⁻⁸."""
SEPARATOR = "\x1f"


@dataclass(frozen=True)
class QuestionGrams:
    """What is kept of a question's words.

    Args:
        grams: Hashes of its distinct n-grams; empty where it has fewer words than one n-gram.
        whole: Hash of all its words, numbers unmasked; None without a word.
    """

    grams: frozenset[int]
    whole: int | None


def words_hash(sequence: Sequence[str]) -> int:
    """The hash of some words in their order."""
    data = SEPARATOR.join(sequence).encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(data, digest_size=HASH_BYTES).digest(), "big")


def grams_of(sequence: Sequence[str], size: int) -> Iterator[int]:
    """Hashes of all runs of ``size`` words but those of numbers alone, which say nothing masked."""
    for start in range(len(sequence) - size + 1):
        gram = sequence[start : start + size]
        if any(word != NUMBER for word in gram):
            yield words_hash(gram)


def question_grams(text: str, size: int, mask_numbers: bool) -> QuestionGrams:
    """Hash a benchmark question.

    Args:
        text: The question, template stripped.
        size: Words an n-gram.
        mask_numbers: True: numbers count as one and the same word.
    """
    whole = words(text, mask_numbers=False)
    return QuestionGrams(
        frozenset(grams_of(words(text, mask_numbers), size)), words_hash(whole) if whole else None
    )


class NgramIndex:
    """The n-grams of all benchmark questions, looked up a problem at a time.

    A question shorter than ``size`` words has no n-gram, and most of its words are in any
    problem: it is found only in a problem whose words, numbers unmasked, are exactly its own.

    Args:
        questions: Benchmark questions, hashed with the same size and masking.
        size: Words an n-gram.
        mask_numbers: True: numbers count as one and the same word.
    """

    def __init__(self, questions: Sequence[QuestionGrams], size: int, mask_numbers: bool) -> None:
        self._size = size
        self._mask_numbers = mask_numbers
        self._holders: dict[int, list[int]] = defaultdict(list)
        self._short: dict[int, list[int]] = defaultdict(list)
        self._grams = [len(question.grams) for question in questions]
        for index, question in enumerate(questions):
            for gram in question.grams:
                self._holders[gram].append(index)
            if not question.grams and question.whole is not None:
                self._short[question.whole].append(index)

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
        whole = words_hash(words(stripped, mask_numbers=False)) if self._short else None
        return shares | dict.fromkeys(self._short.get(whole, ()) if whole else (), 1.0)
