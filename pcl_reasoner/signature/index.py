"""Compares a text with the signatures of all questions: its numbers, formulas and concepts.

    question   "Find the remainder when 3^2020 is divided by 97."    numbers  2020  3  97
               formulas  3^2020    concepts  :remainder  :divisible    asked  :remainder …
    text       "求 3^2020 除以 97 的余数。"                    has all numbers, 12.1 nats
    text       "Find the remainder when 3^100 is divided by 97."     has 3 and 97, not 2020

A term that occurs in the share p of all problems has -ln p nats: what its presence tells. A text
with many numbers has any given number more often by chance, so there a number counts for less: with
k times the terms of an ordinary problem, -ln(1 - (1 - p)^k).
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from pcl_reasoner.signature.background import background
from pcl_reasoner.signature.concepts import concepts_of
from pcl_reasoner.signature.kinds import asking_part, without_answer_form
from pcl_reasoner.signature.terms import formulas_of, number_of, numbers_of

HASH_BYTES = 8
MAX_NATS = 5.0
"""Nats of one term, at most: a single rare number does not make a question."""
SMOOTHING = 10
"""A term's share among the questions themselves is the number of its other holders, divided by
the number of questions and this number."""
ANSWER_NATS = 1.5
"""A text that shares fewer nats with a question is not searched for its answer."""
FAMILIES = ("numbers", "formulas", "concepts", "asked")
"""Families of terms. ``asked`` has the concepts of the sentences that ask for something."""

Table = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Signature:
    """The terms of a question, hashed.

    Args:
        terms: Family -> hash of a term -> number of background problems that have it.
        answer: Key of its answer, from ``answer_key``; None if it is not known.
    """

    terms: Mapping[str, Mapping[int, int]]
    answer: int | None = None


@dataclass(frozen=True)
class Shared:
    """What a text and each question have in common, per family of terms.

    Args:
        of_question: Family -> share of the question's nats that the text has, (questions,); 0.5 if
            the question has no such term.
        of_text: Family -> share of the text's nats that the question has, (questions,); 0.5 if the
            text has no such term.
        nats: Nats of the shared numbers and formulas in a text of this length, (questions,).
        missing: Nats of the question's numbers that the text does not have, (questions,).
        extra: Nats of the text's numbers that the question does not have, (questions,).
        concept_nats: Nats of the shared concepts, (questions,).
        answered: Nats of the question's answer in the text, (questions,); 0: not there, not known.
    """

    of_question: dict[str, Table]
    of_text: dict[str, Table]
    nats: Table
    missing: Table
    extra: Table
    concept_nats: Table
    answered: Table


def families_of(text: str) -> dict[str, set[str]]:
    """The terms of a text, by family.

    Args:
        text: A problem, a response or a program, without its chat template.
    """
    plain = without_answer_form(text)
    asking = asking_part(plain)
    concepts = concepts_of(plain)
    return {
        "numbers": numbers_of(text),
        "formulas": formulas_of(text),
        "concepts": concepts,
        "asked": concepts if asking is plain else concepts_of(asking),
    }


@lru_cache(maxsize=100_000)
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
    families = families_of(text)
    return Signature(
        {name: {_hashed(term): counts.count(term) for term in families[name]} for name in FAMILIES},
        key,
    )


class SignatureIndex:
    """An index of the signatures of all benchmark questions, queried with one text at a time.

    Args:
        signatures: One per question; a term counts as more frequent the more questions have it.
        salts: The salt of each question's answer; None: its answer is not compared.

    ``nats`` has what the numbers and formulas of each question tell, (questions,).
    """

    def __init__(self, signatures: Sequence[Signature], salts: Sequence[int | None]) -> None:
        self._count = len(signatures)
        self._ordinary = background().terms_per_problem
        self._ordinary_concepts = background().concepts_per_problem
        self._total = background().problems + len(signatures) + 1
        self._answers = [
            (index, one.answer, salt)
            for index, (one, salt) in enumerate(zip(signatures, salts, strict=True))
            if one.answer is not None and salt is not None
        ]
        self._shares: dict[int, float] = {}
        self._holders: dict[str, dict[int, npt.NDArray[np.int64]]] = {}
        self._nats = {name: np.zeros(self._count) for name in FAMILIES}
        for name in FAMILIES:
            self._add(name, [one.terms[name] for one in signatures])
        self.nats = self._nats["numbers"] + self._nats["formulas"]

    def _add(self, name: str, terms: Sequence[Mapping[int, int]]) -> None:
        """Index one family of terms of all questions."""
        among = Counter(term for one in terms for term in one)
        holders: dict[int, list[int]] = defaultdict(list)
        for index, one in enumerate(terms):
            for term, count in one.items():
                # Questions from one generator have many terms in common, which say nothing.
                here = (among[term] - 1) / (self._count + SMOOTHING)
                share = max(self._share(count + among[term]), here)
                self._shares[term] = max(share, self._shares.get(term, 0.0))
                holders[term].append(index)
        for index, one in enumerate(terms):
            self._nats[name][index] = -sum(math.log(self._shares[term]) for term in sorted(one))
        self._holders[name] = {term: np.array(found) for term, found in holders.items()}

    def _share(self, count: int) -> float:
        """The share of all problems with a term, at least that of MAX_NATS."""
        return min(1.0, max(math.exp(-MAX_NATS), (count + 0.5) / self._total))

    def shared(self, text: str, answers: bool = False) -> Shared:
        """What a text has in common with each question.

        Args:
            text: A problem, a response or a program, without its chat template.
            answers: True: also look for the answers of questions that share ANSWER_NATS or more.
        """
        families = families_of(text)
        length = max(1.0, len(families["numbers"] | families["formulas"]) / self._ordinary)
        # A long text has many concepts by chance.
        wide = max(1.0, len(families["concepts"]) / self._ordinary_concepts)
        widths = {"numbers": 1.0, "formulas": 1.0, "concepts": wide, "asked": wide}
        found = {name: self._found(name, families[name], widths[name]) for name in FAMILIES}
        own = {name: self._own(families[name]) for name in FAMILIES}
        numbers = self._found("numbers", families["numbers"], length)
        formulas = self._found("formulas", families["formulas"], length)
        return Shared(
            of_question={name: _part(found[name], self._nats[name]) for name in FAMILIES},
            of_text={
                name: _part(found[name], np.full(self._count, own[name])) for name in FAMILIES
            },
            nats=numbers + formulas,
            missing=self._nats["numbers"] - found["numbers"],
            extra=own["numbers"] - found["numbers"],
            concept_nats=found["concepts"],
            answered=self._answered(families["numbers"], length, numbers + formulas)
            if answers
            else np.zeros(self._count),
        )

    def _found(self, name: str, terms: Iterable[str], length: float = 1.0) -> Table:
        """Nats of a text's terms that each question has, in a text of a length."""
        nats = np.zeros(self._count)
        holders = self._holders[name]
        for term in sorted(map(_hashed, terms)):
            if term in holders:
                nats[holders[term]] -= math.log(1 - (1 - self._shares[term]) ** length)
        return nats

    def _own(self, terms: Iterable[str]) -> float:
        """Nats of all terms of a text."""
        counts = background()
        return -sum(
            math.log(self._shares.get(_hashed(term)) or self._share(counts.count(term)))
            for term in sorted(terms)
        )

    def _answered(self, numbers: Iterable[str], length: float, shared: Table) -> Table:
        """Nats of each question's answer, where it is among the numbers of a text."""
        nats = np.zeros(self._count)
        counts = background()
        for index, answer, salt in self._answers:
            for number in numbers if shared[index] >= ANSWER_NATS else ():
                if answer_key(number, salt) == answer:
                    share = self._share(counts.count(number))
                    nats[index] = -math.log(1 - (1 - share) ** length)
        return nats


def _part(found: Table, whole: Table) -> Table:
    """found / whole; 0.5 where there is nothing to find."""
    return np.where(whole > 0, found / np.maximum(whole, 1e-9), 0.5)


def in_common(text: str, question: Signature) -> list[str]:
    """The terms of a text that a question has too: numbers, formulas, then concepts.

    Args:
        text: A text, without its chat template.
        question: The question's signature.
    """
    families = families_of(text)
    return [
        term
        for name in FAMILIES[:3]
        for term in sorted(families[name])
        if _hashed(term) in question.terms[name]
    ]
