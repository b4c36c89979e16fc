"""Measures which part of a question's signature a text has: as a share, and in nats.

    question   "Find the remainder when 3^2020 is divided by 97."    terms  3^2020  2020  3  97
    text       "求 3^2020 除以 97 的余数。"                    has all: share 1.0, 15.0 nats
    text       "Find the remainder when 3^100 is divided by 97."     has 3 and 97: 0.40

A term that occurs in the share p of all problems has -ln p nats: what its presence tells. A text
with many numbers has any given number more often by chance, so there a term counts for less: with
k times the terms of an ordinary problem, -ln(1 - (1 - p)^k).
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from pcl_reasoner.signature.background import background
from pcl_reasoner.signature.terms import number_of, terms_of

HASH_BYTES = 8
SHORTEST = 0.2
"""A text with less than this share of a question's characters is no translation of it: Chinese has
about a third of the characters of English."""
MAX_NATS = 5.0
"""Nats of one term, at most: a single rare number does not make a question."""


@dataclass(frozen=True)
class Signature:
    """The terms of a question, hashed.

    Args:
        terms: Hash of a term -> number of background problems that have it.
        characters: Length of the question.
        answer: Key of its answer, from ``answer_key``; None if it is not known.
    """

    terms: dict[int, int]
    characters: int
    answer: int | None = None


@dataclass(frozen=True)
class Shared:
    """What a text has of a question's signature.

    Args:
        share: Share of the signature, weighted by nats, in (0, 1].
        nats: Nats of the shared terms in this text.
    """

    share: float
    nats: float


def _hashed(term: str, salt: bytes = b"") -> int:
    return int.from_bytes(blake2b(term.encode(), digest_size=HASH_BYTES, salt=salt).digest(), "big")


def answer_key(answer: str, salt: int) -> int:
    """The salted hash of an answer; a number is hashed by its value.

    Args:
        answer: A question's answer, or a number of a text that may have it.
        salt: 64 bits that belong to the question.
    """
    return _hashed(number_of(answer) or answer.strip(), salt.to_bytes(8, "big"))


def signature(text: str, answer: str | None = None, salt: int | None = None) -> Signature:
    """The signature of a question.

    Args:
        text: The question, without its chat template.
        answer: Its answer, if it is known.
        salt: The salt of the answer's key; None: no key.
    """
    counts = background()
    key = None if answer is None or salt is None else answer_key(answer, salt)
    terms = {_hashed(term): counts.count(term) for term in terms_of(text)}
    return Signature(terms, len(text), key)


class SignatureIndex:
    """An index of the signatures of all benchmark questions, queried with one text at a time.

    Args:
        signatures: One per question; a term counts as more frequent the more questions have it.

    ``nats`` has the information of each whole signature, shape (questions,).
    """

    def __init__(self, signatures: Sequence[Signature]) -> None:
        self._ordinary = background().terms_per_problem
        among = Counter(term for one in signatures for term in one.terms)
        total = background().problems + len(signatures) + 1
        self._shortest = [SHORTEST * one.characters for one in signatures]
        self._shares: dict[int, float] = {}
        self._holders: dict[int, list[int]] = defaultdict(list)
        self.nats = np.zeros(len(signatures))
        for index, one in enumerate(signatures):
            for term, count in one.terms.items():
                share = max(math.exp(-MAX_NATS), (count + among[term] + 0.5) / total)
                self._shares[term] = min(share, 1.0)
                self._holders[term].append(index)
                self.nats[index] -= math.log(self._shares[term])

    def shared(self, text: str) -> dict[int, Shared]:
        """What a text has of each question's signature.

        Args:
            text: A problem, a response or a program, without its chat template.

        Returns:
            Index of a question -> its shared part; questions with nothing shared are left out.
        """
        terms = {_hashed(term) for term in terms_of(text)}
        found = self._weighed(terms & self._shares.keys(), len(terms) / self._ordinary)
        return {index: one for index, one in found.items() if len(text) >= self._shortest[index]}

    def answer_nats(self, text: str, answer: int, salt: int) -> float:
        """What it tells, in nats, that a question's answer occurs in a text; 0 if it does not.

        Args:
            text: A text, without its chat template.
            answer: The key of the answer.
            salt: The salt of this key.
        """
        terms = terms_of(text)
        found = [term for term in terms if answer_key(term, salt) == answer]
        if not found:
            return 0.0
        counts = background()
        share = (counts.count(found[0]) + 0.5) / counts.problems
        share = max(math.exp(-MAX_NATS), min(share, 1.0))
        return -math.log(1 - (1 - share) ** max(1.0, len(terms) / self._ordinary))

    def _weighed(self, terms: Iterable[int], length: float) -> dict[int, Shared]:
        """The sums over the terms that a text shares with any question.

        Args:
            terms: Hashes of those terms.
            length: The text's number of terms, per ordinary problem's.
        """
        chances: dict[int, float] = defaultdict(float)
        own: dict[int, float] = defaultdict(float)
        for term in sorted(terms):
            share = self._shares[term]
            chance = 1 - (1 - share) ** max(1.0, length)
            for index in self._holders[term]:
                chances[index] -= math.log(chance)
                own[index] -= math.log(share)
        return {
            index: Shared(own[index] / float(self.nats[index]), nats)
            for index, nats in chances.items()
            if nats > 0
        }
