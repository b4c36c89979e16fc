"""Checkers of contamination: each says of every text whether it belongs to one of the questions.

    flagged(texts, questions) -> [True, False, …]

13-grams and 8-grams are the rules that others published, by their descriptions: one n-gram of words
in common is enough. ``weighted`` is an n-gram overlap whose n-grams count by how rare they are.
"""

from __future__ import annotations

import functools
import math
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from pcl_reasoner.contamination import check as check_module
from pcl_reasoner.contamination.config import ContaminationConfig
from pcl_reasoner.contamination.fingerprints import Question
from pcl_reasoner.embedding import embed

# One model and one cache for all checks.
vars(check_module)["load_embedder"] = functools.cache(embed.load_embedder)
CACHE = tempfile.TemporaryDirectory()
Checker = Callable[[Sequence[str], Sequence[Question]], list[bool]]


def ours(texts: Sequence[str], questions: Sequence[Question]) -> list[bool]:
    """This project's check with its defaults."""
    return _by_config(texts, questions, ContaminationConfig())


def without_signature(texts: Sequence[str], questions: Sequence[Question]) -> list[bool]:
    """This project's check without numbers and formulas."""
    return _by_config(texts, questions, ContaminationConfig(signature=False))


def upstream(texts: Sequence[str], questions: Sequence[Question]) -> list[bool]:
    """The check of PCL-Reasoner V1: one embedding of the text in its chat template, 0.7."""
    return _by_config(texts, questions, ContaminationConfig(method="upstream"))


def _by_config(
    texts: Sequence[str], questions: Sequence[Question], config: ContaminationConfig
) -> list[bool]:
    found = check_module.check(texts, questions, config, cache=Path(CACHE.name))
    return [found.matches[text].rule is not None for text in found.text_of_row]


def words(text: str) -> list[str]:
    """Words of letters and digits, in lower case."""
    return re.findall(r"\w+", text.lower())


def grams(text: str, size: int) -> set[tuple[str, ...]]:
    """The n-grams of words; a text with fewer words is one n-gram."""
    found = words(text)
    return {tuple(found[at : at + size]) for at in range(max(1, len(found) - size + 1))}


def one_in_common(texts: Sequence[str], questions: Sequence[Question], size: int) -> list[bool]:
    """An n-gram of the text is an n-gram of a question."""
    known = {gram for question in questions for gram in grams(question.text, size)}
    return [not known.isdisjoint(grams(text, size)) for text in texts]


def weighted(
    texts: Sequence[str], questions: Sequence[Question], size: int = 5, share: float = 0.5
) -> list[bool]:
    """The text has a share of a question's n-grams; rare n-grams weigh more."""
    sets = [grams(question.text, size) for question in questions]
    among = Counter(gram for found in sets for gram in found)
    weights = [{gram: math.log(1 + len(sets) / among[gram]) for gram in found} for found in sets]
    flagged = []
    for text in texts:
        mine = grams(text, size)
        shares = (
            sum(weight for gram, weight in one.items() if gram in mine) / sum(one.values())
            for one in weights
        )
        flagged.append(max(shares) >= share)
    return flagged


CHECKERS: dict[str, Checker] = {
    "ours": ours,
    "no signature": without_signature,
    "V1": upstream,
    "13-grams": functools.partial(one_in_common, size=13),
    "8-grams": functools.partial(one_in_common, size=8),
    "weighted": weighted,
}
"""Name -> checker."""
