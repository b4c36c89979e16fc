"""Collects the values that the page shows: the content of summary.json.

A sample row of the funnel::

    {"key": "v15_opg/pack", "name": "pack", "there": True, "unit": "segments", "read": 1950,
     "kept": 1944, "dropped": {"too_long": 6}, "paper": [{"label": "…", "count": 27174}]}
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pcl_reasoner.evaluate.published import SCORES
from pcl_reasoner.report import scores, training
from pcl_reasoner.report.records import StageRecord, finite

PAPER = "paper"
"""The profile of the published run."""

HITS_SHOWN = 5
HIT_COLUMNS = ("rule", "cosine", "ngrams", "problem", "benchmark", "benchmark_problem")
HIT_CHARACTERS = 600


def summarize(
    records: Sequence[StageRecord], recipe: Mapping[str, Any], examples: list[dict[str, Any]]
) -> dict[str, Any]:
    """Collect everything on the page that is equal for equal runs.

    Args:
        records: Every stage before the report, in the order in which they run.
        recipe: The facts in ``StageContext.recipe``.
        examples: As ``join_examples`` gives them.

    Returns:
        JSON values only, without times, hosts and commits.
    """
    rows = scores.collect_scores(records)
    comparison = scores.compare(rows, records, str(recipe.get("name", "")))
    trained = [training.digest(record) for record in records if record.files.get("metrics")]
    funnel, paper_only = build_funnel(records, recipe)
    names = ("name", "title", "profile", "launch", "verified", "seed", "choices")
    summary = {
        "recipe": {name: recipe.get(name) for name in names},
        "synthetic": recipe.get("profile") != PAPER,
        "warnings": collect_warnings(records, trained, correct_share_of_grades(records)),
        "funnel": funnel,
        "paper_only": paper_only,
        "contamination": [contamination(one) for one in records if "sweep" in one.files],
        "lengths": [table for record in records for table in length_tables(record)],
        "packing": [packing(record) for record in records if record.files.get("accounting")],
        "training": trained,
        "scores": rows,
        "published": published_scores(rows),
        "comparison": comparison,
        "expect": scores.check_expected(recipe.get("expect") or {}, rows, comparison, records),
        "grades": grades(records),
        "problems": examples,
        "choices": choices(records, recipe),
        "fingerprints": {
            record.key: record.manifest.get("fingerprint") for record in records if record.manifest
        },
    }
    # JSON may contain lone surrogates, which UTF-8 cannot encode.
    text = json.dumps(summary, ensure_ascii=False).encode("utf-8", "replace")
    found: dict[str, Any] = json.loads(text)
    return found


def build_funnel(
    records: Sequence[StageRecord], recipe: Mapping[str, Any]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Collect every stage's counts, with the paper's counts beside them.

    Returns:
        The rows, and the paper's counts for which this run has no stage.
    """
    published = (recipe.get("published") or {}).get("funnel") or []
    by_stage: dict[str, list[dict[str, Any]]] = {}
    for entry in published:
        stage = str(entry.get("stage", ""))
        key = stage if "/" in stage else f"{recipe.get('name', '')}/{stage}"
        by_stage.setdefault(key, []).append(
            {
                "stage": stage,
                "label": str(entry.get("label", "")),
                "count": entry.get("count"),
                "figure": entry.get("figure"),
            }
        )
    rows = []
    for record in records:
        counts = record.counts
        rows.append(
            {
                "key": record.key,
                # In data-check attributes, stages of the report's own recipe have bare names.
                "check": record.name if record.recipe == recipe.get("name") else record.key,
                "recipe": record.recipe,
                "name": record.name,
                "type": record.type,
                "there": record.manifest is not None,
                "unit": str(counts.get("unit", "")),
                "read": counts.get("read"),
                "kept": counts.get("kept"),
                "dropped": dict(counts.get("dropped") or {}),
                "paper": [
                    {**entry, "here": figure_of(counts, entry["figure"])}
                    for entry in by_stage.pop(record.key, [])
                ],
            }
        )
    return rows, [entry for entries in by_stage.values() for entry in entries]


def figure_of(counts: Mapping[str, Any], name: str | None) -> int | None:
    """The run's count that belongs to a published one: ``kept``, or a figure in the counts' info.

    Args:
        counts: A stage's counts.
        name: E.g. ``mixed_rows``, ``outcomes.correct``; None: the published line names no figure.
    """
    value: Any = {**(counts.get("info") or {}), "kept": counts.get("kept")}
    for part in (name or "").split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value if isinstance(value, int) else None


def published_scores(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The published AIME scores; empty if no AIME was evaluated: other scores do not compare."""
    if not any("aime" in row["benchmark"].lower() for row in rows):
        return []
    return [asdict(published) for published in SCORES]


def collect_warnings(
    records: Sequence[StageRecord],
    trained: Sequence[Mapping[str, Any]],
    selected_share: Mapping[str, Any] | None,
) -> list[dict[str, str]]:
    """Collect the stages' own warnings, and then the report's.

    Args:
        records: Every stage.
        trained: Digests of the training stages.
        selected_share: Share of correct responses as graded; used if no training stage has one.
    """
    found = [
        {"stage": record.key, "text": str(text)}
        for record in records
        if record.manifest
        for text in record.manifest.get("warnings") or []
    ]
    found += [
        {"stage": "report", "text": text}
        for digest in trained
        for text in training.warnings_about(dict(digest))
    ]
    measured = any(digest["correct_share"] is not None for digest in trained)
    if selected_share and not measured and selected_share["share"] < 0.5:
        text = (
            f"{selected_share['key']}: only {selected_share['share']:.1%} of the graded responses "
            f"are correct ({selected_share['correct']} of {selected_share['graded']}). Under one "
            "half, a loss without a baseline can make the model worse."
        )
        found.append({"stage": "report", "text": text})
    return found


def grades(records: Sequence[StageRecord]) -> list[dict[str, Any]]:
    """Responses by verdict, one entry per grading stage."""
    return [
        {"key": record.key, "verdicts": record.files["verdict_counts"]}
        for record in records
        if record.files.get("verdict_counts")
    ]


def correct_share_of_grades(records: Sequence[StageRecord]) -> dict[str, Any] | None:
    """The share of correct responses in the last grading stage; None if there is none."""
    graded = grades(records)
    if not graded:
        return None
    verdicts = graded[-1]["verdicts"]
    total = sum(verdicts.values())
    correct = verdicts.get("correct", 0)
    return {"key": graded[-1]["key"], "correct": correct, "graded": total, "share": correct / total}


def contamination(record: StageRecord) -> dict[str, Any]:
    """The results of a check: hits by rule, numbers at other thresholds, and a few hits."""
    hits = record.files.get("hits") or []
    rules = Counter(str(hit.get("rule")) for hit in hits)
    threshold = finite(record.config.get("threshold"))
    sweep = record.files.get("sweep") or {}
    return {
        "key": record.key,
        "problems": record.counts.get("read"),
        "removed": (record.counts.get("read") or 0) - (record.counts.get("kept") or 0),
        "dropped": dict(record.counts.get("dropped") or {}),
        "hits": len(hits),
        "rules": dict(sorted(rules.items())),
        "settings": {
            name: value
            for name, value in sorted(record.config.items())
            if isinstance(value, bool | int | float | str)
        },
        "sweep": [
            {"threshold": text, "used": float(text) == threshold, "flagged": dict(flagged)}
            for text, flagged in sorted(sweep.items(), key=lambda item: float(item[0]))
        ],
        "examples": [
            {name: str(hit[name])[:HIT_CHARACTERS] for name in HIT_COLUMNS if name in hit}
            for hit in hits[:HITS_SHOWN]
        ],
    }


def length_tables(record: StageRecord) -> list[dict[str, Any]]:
    """The histograms of a length stage, one each for rows and for problems."""
    histogram = record.files.get("histogram")
    if not isinstance(histogram, Mapping):
        return []
    return [
        {
            "key": record.key,
            "name": str(name),
            "edges": table["edges"],
            "counts": table["counts"],
            "total": sum(table["counts"]),
            "threshold": finite(histogram.get("threshold")),
            "not_tokenised": table.get("not_tokenised", 0),
            "counted_by": _counted_by(record),
        }
        for name, table in sorted(histogram.items())
        if isinstance(table, Mapping) and table.get("counts") and "edges" in table
    ]


def _counted_by(record: StageRecord) -> str:
    """The library that counted the tokens, and the number of texts whose count was checked."""
    found = (record.counts.get("info") or {}).get("tokens") or {}
    checked = f", {found['checked']} of {found['texts']} checked" if "checked" in found else ""
    return f"counted by {found['library']}{checked}" if found else ""


def packing(record: StageRecord) -> dict[str, Any]:
    """A packing stage's accounting: its single figures, and its tables (rows by segments …)."""
    accounting = sorted(record.files["accounting"].items())
    return {
        "key": record.key,
        "figures": {
            name: value for name, value in accounting if not isinstance(value, dict | list)
        },
        "tables": {name: value for name, value in accounting if isinstance(value, dict)},
    }


def choices(records: Sequence[StageRecord], recipe: Mapping[str, Any]) -> list[dict[str, str]]:
    """The choices between sources that contradict each other, for every recipe that took part."""
    by_recipe = {
        record.recipe: record.manifest.get("choices") or {} for record in records if record.manifest
    }
    by_recipe[str(recipe.get("name", ""))] = recipe.get("choices") or {}
    return [
        {"recipe": name, "choice": str(choice), "use": str(use)}
        for name, chosen in by_recipe.items()
        for choice, use in chosen.items()
    ]
