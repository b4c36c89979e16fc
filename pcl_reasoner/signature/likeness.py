"""How likely a text is a rewrite of a question, from what the two share: log-odds.

    question   "Let r, s and t be the roots of x³ − 6x² + 5x − 7 = 0. Find r³ + s³ + t³."
    text       "What do the cubes of the zeros of x³ − 6x² + 5x − 7 add up to?"      cosine 0.65
    shared     all of the numbers, a formula, most of the concepts                   log-odds 2.1

A rewrite has the numbers of the question and few others, and asks for the same thing. Another
question of the same topic has other numbers, or asks for something else. The log-odds are a
weighted sum, with weights for each kind of text: a solution has many numbers of its own, and a
translation has no cosine. The weights are in ``likeness.json``; benchmarks/deconbench/fit.py fitted
them.
"""

import json
from functools import cache
from importlib.resources import files

import numpy as np
import numpy.typing as npt

from pcl_reasoner.signature.index import Shared

Table = npt.NDArray[np.float64]

MANY_NATS = 12.0
"""More shared nats than this count as this many."""
FEATURES = (
    *("cosine", "numbers", "numbers_of_text", "formulas", "concepts", "concepts_of_text"),
    *("asked", "asked_of_text", "nats", "concept_nats", "missing", "extra", "answered"),
)
"""Names of the columns of ``features``."""
AGAINST = ("missing", "extra")
"""Features that speak against a rewrite; all others speak for it."""
COSINE, CONCEPTS = FEATURES.index("cosine"), FEATURES.index("concepts")
COSINE_WEIGHT = 40.0
"""No kind of text has a larger weight of the cosine; a test compares."""
SCALE = (0.4, 0.7)
"""Cosines of the packaged model; another model's cosines are mapped to them, see ``scaled``."""
WITH_ANSWER = ("solution", "program")
"""Kinds of texts in which a question's answer is looked for."""


def features(shared: Shared, cosines: Table | None) -> Table:
    """What speaks for each question, and against it: [questions, features], each in [0, 1].

    Args:
        shared: What the text and the questions have in common.
        cosines: Cosine of the text and each question, (questions,); None: not known, counts as 0.
    """
    of_question, of_text = shared.of_question, shared.of_text

    def capped(nats: Table) -> Table:
        return np.minimum(nats, MANY_NATS) / MANY_NATS

    none = np.zeros_like(shared.nats)
    columns = {
        "cosine": none if cosines is None else scaled(cosines, SCALE),
        "numbers": of_question["numbers"],
        "numbers_of_text": of_text["numbers"],
        "formulas": np.where(of_question["formulas"] == 0.5, 0.0, of_question["formulas"]),
        "concepts": of_question["concepts"],
        "concepts_of_text": of_text["concepts"],
        "asked": of_question["asked"],
        "asked_of_text": of_text["asked"],
        "nats": capped(shared.nats),
        "concept_nats": capped(shared.concept_nats),
        "missing": capped(shared.missing),
        "extra": capped(shared.extra),
        "answered": shared.answered / 5.0,
    }
    return np.stack([columns[name] for name in FEATURES], axis=1)


def scaled(cosines: Table | float, scale: tuple[float, float]) -> Table:
    """Cosines of a model as those of the packaged model that say as much, in [0, 1].

    Args:
        cosines: Cosines of a model.
        scale: Those of its cosines that say as much as SCALE; between them, and from them to -1 and
            1, the map is linear.
    """
    known = [-1.0, *scale, 1.0]
    return np.clip(np.interp(cosines, known, [-1.0, *SCALE, 1.0]), 0.0, 1.0)


def steepest(scale: tuple[float, float]) -> float:
    """The largest factor by which ``scaled`` enlarges a difference of two cosines."""
    known, own = np.diff([-1.0, *scale, 1.0]), np.diff([-1.0, *SCALE, 1.0])
    return float((own / np.maximum(known, 1e-6)).max())


@cache
def weights(kind: str, embedded: bool) -> tuple[Table, float]:
    """The weights of a kind of text, (features,), and the constant.

    Args:
        kind: Kind of the text, from ``kinds.kind_of``.
        embedded: True if the cosine is known, or would be if it mattered.
    """
    text = files("pcl_reasoner.signature").joinpath("likeness.json").read_text(encoding="utf-8")
    found = json.loads(text)[kind if embedded else f"{kind}_without_cosine"]
    return np.array([found["weights"].get(name, 0.0) for name in FEATURES]), found["constant"]
