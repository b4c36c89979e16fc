"""Shows what the filters of problems and responses measured: perplexity, repeats and pass rates.

A sample measure of the stage ``tidy``::

    {"name": "perplexity", "edges": [1, 1.189207, …], "counts": [0, 12, …], "limit": 20.0,
     "missing": 0, "quantiles": {"0.5": 2.1, …}, "from": [[16.0, 41], [32.0, 9]]}

``from`` has the number of responses that reach a value, for a person who chooses a threshold.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from pcl_reasoner.page_parts import charts, drawing
from pcl_reasoner.page_parts.records import StageRecord, finite

_MEASURES = {
    "perplexity": "perplexity of a response",
    "repeats": "times that a phrase occurs (1: no repeat)",
}
"""Measure of histograms.json -> name of the x axis."""
_RATES = (("kept", "trained"), ("dropped", "wrong"))


def filtered(records: Sequence[StageRecord]) -> list[dict[str, Any]]:
    """Return what the page shows of every stage ``tidy`` that has run."""
    return [_filtered(one) for one in records if one.type == "tidy" and one.manifest]


def _filtered(record: StageRecord) -> dict[str, Any]:
    info, dropped = record.counts.get("info") or {}, record.counts.get("dropped") or {}
    histograms = record.files.get("histograms") or {}
    failed = info.get("failed") or {}
    return {
        "key": record.key,
        "read": record.counts.get("read"),
        "kept": record.counts.get("kept"),
        "filters": [
            {
                "name": name,
                "rule": rule,
                "failed": failed.get(name, 0),
                "dropped": dropped.get(name, 0),
            }
            for name, rule in _rules(record.config).items()
        ],
        "structure": dict(info.get("structure") or {}),
        "measures": [
            {"name": name, **histograms[name], "from": reached(histograms[name])}
            for name in _MEASURES
            if any((histograms.get(name) or {}).get("counts") or [])
        ],
    }


def _rules(config: Mapping[str, Any]) -> dict[str, str]:
    """Return filter -> what it drops, in words; a filter that is off has a dash."""
    limit, least = config.get("max_perplexity"), config.get("min_tokens")
    repeats = {
        "consecutive": f"has a phrase of at least {least} tokens {config.get('times')} or more "
        "times in a row",
        "count": f"has a phrase of {least} tokens more than {config.get('max_occurrences')} times",
    }
    tags = {
        "think_answer": "<think>…</think><answer>…</answer>",
        "think_only": "<think>…</think> and then text",
    }
    form = tags.get(str(config.get("tags")), "")
    return {
        "high_perplexity": "–" if limit is None else f"has a perplexity above {limit:g}",
        "repeated_phrase": repeats.get(str(config.get("repeat")), "–"),
        "incomplete_structure": f"did not end, or is not {form}",
    }


def reached(histogram: Mapping[str, Any]) -> list[list[float]]:
    """Return (value, responses that are at least as large) at the edges that are whole numbers.

    They begin at the median, and end where no response is left. Between 8 and the largest value,
    these edges are the powers of two.
    """
    edges, counts = histogram["edges"], histogram["counts"]
    median = (histogram.get("quantiles") or {}).get("0.5", edges[0])
    pairs = [(edge, sum(counts[index:])) for index, edge in enumerate(edges[:-1])]
    return [[edge, left] for edge, left in pairs if edge == int(edge) and edge > median and left]


def filter_chart(measure: Mapping[str, Any]) -> Markup:
    """Draw the histogram of a measure, with its threshold as a line."""
    name = measure["name"]
    columns = (measure["edges"], measure["counts"], _MEASURES[name], measure["limit"])
    return charts.histogram(f"Responses by {name}", *columns, logarithmic=True)


def perplexities(records: Sequence[StageRecord]) -> list[dict[str, Any]]:
    """Return what the page shows of every stage ``perplexity`` that has run."""
    found = []
    for record in records:
        info = record.counts.get("info") or {}
        if record.type != "perplexity" or not record.manifest:
            continue
        mean = finite(info.get("log_prob_mean"))
        found.append(
            {
                "key": record.key,
                "engine": str(info.get("engine", "")),
                "responses": record.counts.get("kept"),
                "tokens": info.get("trained_tokens", 0),
                "without_tokens": info.get("without_tokens", 0),
                "mean": None if mean is None else math.exp(-mean),
            }
        )
    return found


def pass_rates(records: Sequence[StageRecord]) -> list[dict[str, Any]]:
    """Return what the page shows of every stage ``pass_rate`` that has run."""
    found = []
    for record in records:
        info = record.counts.get("info") or {}
        if record.type != "pass_rate" or not record.manifest:
            continue
        above, top = finite(record.config.get("above")) or 0.0, finite(record.config.get("below"))
        below = 1.0 if top is None else top
        found.append(
            {
                "key": record.key,
                "above": above,
                "below": below,
                "dropped": dict(record.counts.get("dropped") or {}),
                "not_filtered": dict(info.get("not_filtered") or {}),
                "failed_verdicts": info.get("failed_verdicts", 0),
                "kinds": {
                    kind: {
                        "problems": table["zero"] + sum(table["counts"]) + table["one"],
                        "bins": rate_bins(table, above, below),
                    }
                    for kind, table in (info.get("rates") or {}).items()
                },
            }
        )
    return found


def rate_bins(table: Mapping[str, Any], above: float, below: float) -> list[dict[str, Any]]:
    """Return the bars of a histogram of pass rates: name, number, whether they are dropped.

    Args:
        table: ``zero``, ``edges``, ``counts`` and ``one`` (revise/pass_rate.py).
        above: Problems at or under this pass rate are dropped.
        below: Problems at or over it are dropped.
    """
    edges = table["edges"]
    bins = [("0: never solved", table["zero"], True)]
    for low, high, count in zip(edges, edges[1:], table["counts"], strict=False):
        bins.append((f"from {low:g} to {high:g}", count, high <= above or low >= below))
    bins.append(("1: always solved", table["one"], True))
    return [{"name": name, "count": count, "dropped": gone} for name, count, gone in bins]


def rate_chart(kind: str, bins: Sequence[Mapping[str, Any]]) -> Markup:
    """Draw the pass rates of the problems of a kind; the dropped bars have another colour."""
    bars = [
        charts.Bar(
            one["name"],
            (0, one["count"]) if one["dropped"] else (one["count"], 0),
            drawing.group(one["count"]),
        )
        for one in bins
    ]
    return charts.bar_chart(f"Problems of {kind} by pass rate", _RATES, bars, "problems")
