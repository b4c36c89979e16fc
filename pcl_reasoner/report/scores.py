"""Compares scores before and after training, and results with those that the recipe expects.

A sample score of one benchmark in one evaluation. All but counts and lengths are fractions::

    {"key": "v15_opg/evaluate_after", "benchmark": "heldout", "kinds": ["math"], "problems": 200,
     "n": 8, "avg_at_n": 0.903, "interval": [0.876, 0.928], "pass_at_n": 0.98, "maj_at_n": 0.95,
     "mean_length": 41.2, "unfinished": 0.0}
"""

import math
import re
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from pcl_reasoner.evaluate.scores import NORMAL_95
from pcl_reasoner.evaluate.verdict import ROUNDING, Outcome, outcome_of, verdict
from pcl_reasoner.page_parts.records import StageRecord, finite

VOTED = {"math", "science"}
"""Kinds of questions whose responses have an answer, so that the most frequent one counts."""
FRACTIONS = ("avg_at_n", "pass_at_n", "maj_at_n", "gain")
_FIGURES = (
    *("problems", "n", "avg_at_n", "standard_error", "sampling_error"),
    *("pass_at_n", "maj_at_n", "mean_length", "unfinished"),
)


def collect_scores(records: Sequence[StageRecord]) -> list[dict[str, Any]]:
    """Collect one row per benchmark of every evaluation, in the order in which stages run."""
    rows = []
    for record in records:
        for benchmark, score in record.files.get("scores", {}).get("benchmarks", {}).items():
            names = {"key": record.key, "recipe": record.recipe, "stage": record.name}
            figures = {name: finite(score.get(name)) for name in _FIGURES}
            kinds = [str(kind) for kind in score.get("kinds") or []]
            if kinds and not set(kinds) & VOTED:
                # A program has no answer that could be voted on.
                figures["maj_at_n"] = None
            shown = {"interval": score.get("interval"), "kinds": kinds}
            shown["outcomes"] = dict(score.get("outcomes") or {})
            rows.append({**names, "benchmark": benchmark, **shown, **figures})
    return rows


def compare(
    scores: Sequence[Mapping[str, Any]], records: Sequence[StageRecord], recipe: str
) -> list[dict[str, Any]]:
    """Compare the scores before and after training, one row per benchmark.

    Args:
        scores: The result of ``collect_scores``.
        records: The stages of these scores, which also have the scores by problem.
        recipe: The report's recipe. Only its evaluations are used, or all if it has none.

    Returns:
        ``before`` (None if there is only one evaluation) and ``after``, the gain and its 95 %
        interval. The interval is computed from the differences per problem if both evaluations had
        the same problems; otherwise the two scores are assumed to be independent.
    """
    by_problem = {record.key: record.files.get("per_problem", {}) for record in records}
    chosen = [score for score in scores if score["recipe"] == recipe] or list(scores)
    found = []
    for benchmark in dict.fromkeys(score["benchmark"] for score in chosen):
        before, after = _before_and_after([one for one in chosen if one["benchmark"] == benchmark])
        pair = [by_problem[one["key"]].get(benchmark, {}) for one in (before, after) if one]
        error = _paired_error(*pair) if before else None
        gain = _gain(before, after, error)
        found.append({"benchmark": benchmark, "before": before, "after": after, **gain})
    return found


def _before_and_after(
    evaluations: Sequence[Mapping[str, Any]],
) -> tuple[Mapping[str, Any] | None, Mapping[str, Any]]:
    """Return the two evaluations to compare: by their stages' names, or the first and the last."""
    after = next((one for one in evaluations if "after" in one["stage"]), evaluations[-1])
    others = [score for score in evaluations if score is not after]
    first = others[0] if others else None
    return next((one for one in others if "before" in one["stage"]), first), after


def _paired_error(before: Mapping[str, float], after: Mapping[str, float]) -> float | None:
    """Return the difference's standard error; None for unequal problems or fewer than 2."""
    if set(before) != set(after) or len(before) < 2:
        return None
    differences = [after[problem] - before[problem] for problem in sorted(before)]
    return statistics.stdev(differences) / math.sqrt(len(differences))


def _gain(
    before: Mapping[str, Any] | None, after: Mapping[str, Any], paired_error: float | None
) -> dict[str, Any]:
    gain, error, interval, outcome = None, paired_error, None, "single"
    if before is not None and None not in (before["avg_at_n"], after["avg_at_n"]):
        gain, outcome = after["avg_at_n"] - before["avg_at_n"], "unknown"
        errors = before["standard_error"], after["standard_error"]
        if error is None and None not in errors:
            error = math.hypot(*errors)
    if gain is not None and error is not None:
        interval = [gain - NORMAL_95 * error, gain + NORMAL_95 * error]
        outcome = "better" if interval[0] > 0 else "worse" if interval[1] < 0 else "open"
    return {
        "gain": gain,
        "gain_error": error,
        "gain_interval": interval,
        "paired": paired_error is not None,
        "outcome": outcome,
    }


def check_expected(
    expect: Mapping[str, Any],
    scores: Sequence[Mapping[str, Any]],
    comparison: Sequence[Mapping[str, Any]],
    records: Sequence[StageRecord],
) -> list[dict[str, Any]]:
    """Compare the recipe's ``expect`` with the results; a difference is no error.

    ``expect`` maps ``stage.benchmark.figure`` (nested or dotted; stage and benchmark may be left
    out if the rest is unique) to a number, to [low, high], or to a mapping with any of ``value``,
    ``at_least``, ``at_most`` and ``source``. A figure is a field of a score, ``gain``, or a stage's
    ``kept``. A single value for ``avg_at_n`` or ``gain`` is compared as in evaluate/verdict.py; for
    any other fraction the verdict is unknown. Fractions above 1.5 are read as per cent.

    Returns:
        One row per expected figure: name, figure, wanted, got, verdict (met, above, below, too few
        to tell, unknown, not measured), source.
    """
    counts = [{"recipe": r.recipe, "stage": r.name, **r.counts} for r in records if r.counts]
    gains = [{**pair["after"], **pair} for pair in comparison]
    rows = []
    for name, wanted in _flatten(expect):
        *path, figure = name.split(".")
        figure = re.sub(r"_at_\d+$", "_at_n", figure)
        tables = gains if figure == "gain" else [*counts, *scores]
        found = [row for row in tables if finite(row.get(figure)) is not None]
        names = ("recipe", "stage", "benchmark")
        found = [row for row in found if set(path) <= {row.get(level) for level in names}]
        row = found[-1] if found else {}
        rows.append({"name": name, **_judge(wanted, row, figure)})
    return rows


def _flatten(expect: Mapping[str, Any], path: str = "") -> list[tuple[str, Any]]:
    leaves: list[tuple[str, Any]] = []
    for key, value in expect.items():
        name = f"{path}.{key}" if path else str(key)
        if isinstance(value, Mapping) and not {"value", "at_least", "at_most"} & set(value):
            leaves += _flatten(value, name)
        else:
            leaves.append((name, value))
    return leaves


def _judge(wanted: Any, row: Mapping[str, Any], figure: str) -> dict[str, Any]:
    """Return a figure's name, expected bounds, measured value, verdict and source."""
    if isinstance(wanted, list | tuple) and len(wanted) == 2:
        wanted = {"at_least": wanted[0], "at_most": wanted[1]}
    elif not isinstance(wanted, Mapping):
        wanted = {"value": wanted}
    got, bounds = finite(row.get(figure)), {}
    for name in ("value", "at_least", "at_most"):
        bound = finite(wanted.get(name))
        if bound is not None:
            percent = figure in FRACTIONS and abs(bound) > 1.5
            bounds[name] = bound / 100 if percent else bound
    return {
        "figure": figure,
        "wanted": bounds,
        "got": got,
        "verdict": _verdict(got, bounds, figure, row),
        "source": str(wanted.get("source", "")),
    }


_MET: dict[Outcome, str] = {"consistent": "met", "better": "above", "worse": "below"}


def _verdict(
    got: float | None, bounds: Mapping[str, float], figure: str, row: Mapping[str, Any]
) -> str:
    if got is None:
        return "not measured"
    wanted = bounds.get("value")
    if wanted is not None and figure in FRACTIONS:
        outcome = _outcome(got, wanted, figure, row)
        return _MET.get(outcome, outcome) if outcome else "unknown"
    low, high = (
        bounds.get(end, got if wanted is None else wanted) for end in ("at_least", "at_most")
    )
    return "below" if got < low else "above" if got > high else "met"


def _outcome(got: float, wanted: float, figure: str, row: Mapping[str, Any]) -> Outcome | None:
    """Compare a fraction with the expected one; None if its standard error is not known."""
    gain_error, error = finite(row.get("gain_error")), finite(row.get("sampling_error"))
    if figure == "gain" and gain_error is not None:
        return outcome_of(100 * (got - wanted), NORMAL_95 * 100 * gain_error + ROUNDING)
    if figure == "avg_at_n" and error is not None:
        return verdict("", 100 * wanted, got, error, int(row["n"])).word
    return None
