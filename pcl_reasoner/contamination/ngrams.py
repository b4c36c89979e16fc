"""Measures the share of a benchmark question that occurs, word for word, in a training problem.

    question  "Ben has 12 books and loses 3"      words: ben has # books and loses #
    4-grams   ben has # books | has # books and | # books and loses | books and loses #
    problem   "Here Ben has 7 books and sells 2"  has the first two: containment 2 / 4 = 0.5

The share counts the question's n-grams, not the problem's, so a question inside a long text counts
in full. Only hashes of n-grams are stored, so that a comparison does not need a benchmark's text.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from pcl_reasoner.prompt.question_text import NUMBER, strip_template, words

HASH_BYTES = 8
"""Bytes per hash. The probability that any of 10⁸ n-grams collides with any of 10⁴ is 5·10⁻⁸."""
SEPARATOR = "\x1f"
CERTAIN = 0.99
"""Share of a question's n-grams, numbers unmasked, that makes a copy certain."""


@dataclass(frozen=True)
class QuestionGrams:
    """The hashes by which a question is found.

    Args:
        grams: Hashes of its distinct n-grams; empty if it has fewer words than an n-gram.
        text_hash: Hash of all its words, numbers unmasked; None if it has no words.
    """

    grams: frozenset[int]
    text_hash: int | None


def words_hash(sequence: Sequence[str]) -> int:
    """The hash of a sequence of words."""
    data = SEPARATOR.join(sequence).encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(data, digest_size=HASH_BYTES).digest(), "big")


def grams_of(sequence: Sequence[str], size: int) -> Iterator[int]:
    """Hashes of all runs of ``size`` words.

    A run that consists only of masked numbers is skipped, because it identifies no question.
    """
    for start in range(len(sequence) - size + 1):
        gram = sequence[start : start + size]
        if any(word != NUMBER for word in gram):
            yield words_hash(gram)


def question_grams(text: str, size: int, mask_numbers: bool) -> QuestionGrams:
    """Hash a benchmark question.

    Args:
        text: The question, without its chat template.
        size: Words per n-gram.
        mask_numbers: True: all numbers count as the same word.
    """
    grams = frozenset(grams_of(words(text, mask_numbers), size))
    unmasked = words(text, mask_numbers=False)
    return QuestionGrams(grams, words_hash(unmasked) if unmasked else None)


def is_copy(size: int, text: str, question: str) -> bool:
    """True if a text certainly contains a question: the same words and numbers in the same order.

    Args:
        size: Words per n-gram. A shorter question is a copy only of a text with the same words.
        text: The complete stored text.
        question: The benchmark question.
    """
    wanted = words(strip_template(question), mask_numbers=False)
    grams = set(grams_of(wanted, size))
    if not grams:
        return words(strip_template(text), mask_numbers=False) == wanted
    shared = grams.intersection(grams_of(words(text, mask_numbers=False), size))
    return len(shared) >= CERTAIN * len(grams)


class NgramIndex:
    """An index of the n-grams of all benchmark questions, queried with one problem at a time.

    A question shorter than ``size`` words has no n-gram, and its few words occur in many
    problems. So it is found only in a problem with exactly the same words, numbers unmasked.

    Args:
        questions: Benchmark questions, hashed with the same size and masking.
        size: Words per n-gram.
        mask_numbers: True: all numbers count as the same word.
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
            if not question.grams and question.text_hash is not None:
                self._short[question.text_hash].append(index)

    def containments(self, text: str, stripped: str) -> dict[int, float]:
        """Share of each question's n-grams that occur in a problem.

        Args:
            text: The complete stored text of the problem. A longer text does not lower the share,
                and a question in a system prompt or an earlier response is found too.
            stripped: The same problem without chat template; short questions are compared with it.

        Returns:
            Index of a question -> share in (0, 1]; questions with share 0 are left out.
        """
        grams = set(grams_of(words(text, self._mask_numbers), self._size))
        found = Counter(index for gram in grams for index in self._holders.get(gram, ()))
        shares = {index: count / self._grams[index] for index, count in found.items()}
        if self._short:
            text_hash = words_hash(words(stripped, mask_numbers=False))
            shares |= dict.fromkeys(self._short.get(text_hash, ()), 1.0)
        return shares
