"""Compares scores before and after training, and results with the recipe's expected ones.

A sample score of one benchmark in one evaluation. All but counts and lengths are fractions::

    {"key": "v15_opg/evaluate_after", "benchmark": "heldout", "problems": 200, "n": 8,
     "avg_at_n": 0.903, "interval": [0.876, 0.928], "pass_at_n": 0.98, "maj_at_n": 0.95,
     "mean_length": 41.2, "unfinished": 0.0}
"""

import math
import re
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from pcl_reasoner.evaluate.published import ROUNDING
from pcl_reasoner.evaluate.scores import NORMAL_95
from pcl_reasoner.evaluate.verdict import Outcome, outcome_of, verdict
from pcl_reasoner.report.records import StageRecord, finite

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
            interval = score.get("interval")
            rows.append({**names, "benchmark": benchmark, "interval": interval, **figures})
    return rows


def compare(
    scores: Sequence[Mapping[str, Any]], records: Sequence[StageRecord], recipe: str
) -> list[dict[str, Any]]:
    """Compare the scores before and after training, one row per benchmark.

    Args:
        scores: As ``collect_scores`` gives them.
        records: The same stages, with their scores by problem.
        recipe: The report's recipe. Only its evaluations are used; without any, all are.

    Returns:
        ``before`` (None if there is only one evaluation) and ``after``, the gain and its 95 %
        interval. The interval is that of the problems' differences if both evaluations had the
        same problems; otherwise the two scores are taken as independent.
    """
    by_problem = {record.key: record.files.get("per_problem", {}) for record in records}
    chosen = [score for score in scores if score["recipe"] == recipe] or list(scores)
    found = []
    for benchmark in dict.fromkeys(score["benchmark"] for score in chosen):
        evaluations = [score for score in chosen if score["benchmark"] == benchmark]
        after = _named(evaluations, "after") or evaluations[-1]
        others = [score for score in evaluations if score is not after]
        before = _named(others, "before") or (others[0] if others else None)
        pair = [by_problem[one["key"]].get(benchmark, {}) for one in (before, after) if one]
        error = _paired_error(*pair) if before else None
        gain = _gain(before, after, error)
        found.append({"benchmark": benchmark, "before": before, "after": after, **gain})
    return found


def _named(scores: Sequence[Mapping[str, Any]], part: str) -> Mapping[str, Any] | None:
    return next((score for score in scores if part in score["stage"]), None)


def _paired_error(before: Mapping[str, float], after: Mapping[str, float]) -> float | None:
    """Standard error of the mean difference; None unless both had the same two or more problems."""
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
    """Compare the recipe's ``expect`` with the results; a run never fails on it.

    ``expect`` maps ``stage.benchmark.figure`` (nested or dotted; stage and benchmark may be left
    out if the rest is unique) to a number, to [low, high], or to a mapping with any of ``value``,
    ``at_least``, ``at_most`` and ``source``. A figure is one of a score's, ``gain``, or a stage's
    ``kept``. A single value for ``avg_at_n`` or ``gain`` is judged as in evaluate/verdict.py; for
    another fraction the verdict is unknown. Fractions over 1.5 are read as per cent.

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
    """The expected bounds, the measured value, and the verdict."""
    if isinstance(wanted, list | tuple) and len(wanted) == 2:
        wanted = {"at_least": wanted[0], "at_most": wanted[1]}
    elif not isinstance(wanted, Mapping):
        wanted = {"value": wanted}
    got = finite(row.get(figure))
    scaled = {name: _scaled(wanted.get(name), figure) for name in ("value", "at_least", "at_most")}
    bounds = {name: bound for name, bound in scaled.items() if bound is not None}
    return {
        "figure": figure,
        "wanted": bounds,
        "got": got,
        "verdict": _verdict(got, bounds, figure, row),
        "source": str(wanted.get("source", "")),
    }


def _scaled(value: Any, figure: str) -> float | None:
    number = finite(value)
    percent = number is not None and figure in FRACTIONS and abs(number) > 1.5
    return number / 100 if percent and number is not None else number


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
    if got < bounds.get("at_least", wanted if wanted is not None else got):
        return "below"
    return "above" if got > bounds.get("at_most", wanted if wanted is not None else got) else "met"


def _outcome(got: float, wanted: float, figure: str, row: Mapping[str, Any]) -> Outcome | None:
    """The verdict on a fraction against the expected one; None if its error is not known."""
    gain_error, error = finite(row.get("gain_error")), finite(row.get("sampling_error"))
    if figure == "gain" and gain_error is not None:
        return outcome_of(100 * (got - wanted), NORMAL_95 * 100 * gain_error + ROUNDING)
    if figure == "avg_at_n" and error is not None:
        return verdict("", 100 * wanted, got, error, int(row["n"])).word
    return None
