"""Collects the values that the page shows: the content of summary.json.

A sample row of the funnel, which has the counts of every stage::

    {"key": "v15_opg/pack", "name": "pack", "there": True, "unit": "segments", "read": 1950,
     "kept": 1944, "dropped": {"over_length": 6}, "paper": [{"label": "…", "count": 27174}]}
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pcl_reasoner.evaluate.verdict import SCORES
from pcl_reasoner.page_parts.records import StageRecord, finite
from pcl_reasoner.report import filters, kinds, programs, revisions, scores, training
from pcl_reasoner.report.packing import packing
from pcl_reasoner.rl_report import digest as rl_digest
from pcl_reasoner.rl_report.pool import pool_rows
from pcl_reasoner.runner.draft import PAPER

HITS_SHOWN = 5
HIT_COLUMNS = ("rule", "cosine", "ngrams", "problem", "benchmark", "benchmark_problem")
HIT_CHARACTERS = 600


def summarize(
    records: Sequence[StageRecord],
    recipe: Mapping[str, Any],
    examples: list[dict[str, Any]],
    rl_responses: list[dict[str, Any]],
) -> dict[str, Any]:
    """Collect all values on the page that depend only on the run's results.

    Args:
        records: Every stage before the report, in the order in which they run.
        recipe: The facts in ``StageContext.recipe``.
        examples: The result of ``read_examples``.
        rl_responses: The result of ``read_rl_examples``.

    Returns:
        JSON values only, without times, hosts and commits.
    """
    rows = scores.collect_scores(records)
    comparison = scores.compare(rows, records, str(recipe.get("name", "")))
    updated = [record for record in records if record.files.get("metrics")]
    trained = [training.digest(record) for record in updated if record.type != "rl"]
    funnel, paper_only = build_funnel(records, recipe)
    names = ("name", "title", "profile", "launch", "verified", "seed", "choices")
    # The published scores are of AIME, so only AIME scores are shown beside them.
    aime = any("aime" in row["benchmark"].lower() for row in rows)
    summary = {
        "recipe": {name: recipe.get(name) for name in names},
        "synthetic": recipe.get("profile") != PAPER,
        "warnings": collect_warnings(records, trained),
        "funnel": funnel,
        "paper_only": paper_only,
        "contamination": [contamination(one) for one in records if "sweep" in one.files],
        "lengths": [table for record in records for table in length_tables(record)],
        "packing": [packing(record) for record in records if record.files.get("accounting")],
        "training": trained,
        **_of_on_policy(records, rl_responses),
        "scores": rows,
        "published": [asdict(one) for one in SCORES] if aime else [],
        "comparison": comparison,
        "expect": scores.check_expected(recipe.get("expect") or {}, rows, comparison, records),
        "grades": grades(records),
        **_of_data(records),
        "problems": examples,
        "choices": choices(records, recipe),
        "fingerprints": {
            record.key: record.manifest.get("fingerprint") for record in records if record.manifest
        },
    }
    # JSON may contain lone surrogates, which UTF-8 cannot encode.
    return json.loads(json.dumps(summary, ensure_ascii=False).encode("utf-8", "replace"))


def _of_data(records: Sequence[StageRecord]) -> dict[str, Any]:
    """Return the sections on problems, ground truths, tests, filters and kinds."""
    return {
        "kinds": kinds.kind_rows(records),
        "mixes": kinds.mixes(records),
        "graded_by_kind": [
            {"key": one.key, "kinds": one.files["graded_by_kind"]}
            for one in records
            if one.files.get("graded_by_kind")
        ],
        "revisions": revisions.revisions(records),
        "programs": programs.program_rows(records),
        "perplexities": filters.perplexities(records),
        "filters": filters.filtered(records),
        "pass_rates": filters.pass_rates(records),
    }


def _of_on_policy(
    records: Sequence[StageRecord], responses: list[dict[str, Any]]
) -> dict[str, Any]:
    """Return the section on on-policy training."""
    return {
        "rl": rl_digest.digests(records),
        "rl_pool": pool_rows(records),
        "rl_responses": responses,
    }


def build_funnel(
    records: Sequence[StageRecord], recipe: Mapping[str, Any]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Collect every stage's counts, with the paper's counts beside them.

    Returns:
        The rows, and the paper's counts for which this run has no stage.
    """
    by_stage: dict[str, list[dict[str, Any]]] = {}
    for published in (recipe.get("published") or {}).get("funnel") or []:
        names = {name: str(published.get(name, "")) for name in ("stage", "label")}
        stage = names["stage"]
        key = stage if "/" in stage else f"{recipe.get('name', '')}/{stage}"
        figures = {name: published.get(name) for name in ("count", "figure")}
        by_stage.setdefault(key, []).append({**names, **figures})
    rows = []
    for record in records:
        counts = record.counts
        rows.append(
            {
                "key": record.key,
                # In data-check attributes, stages of the report's own recipe have no recipe name.
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
    """Return the run's count to compare with a published one: ``kept`` or one in ``info``.

    Args:
        counts: A stage's counts.
        name: E.g. ``mixed_rows``, ``outcomes.correct``; None: the published line names no figure.
    """
    value: Any = {**(counts.get("info") or {}), "kept": counts.get("kept")}
    for part in (name or "").split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value if isinstance(value, int) else None


def collect_warnings(
    records: Sequence[StageRecord], trained: Sequence[Mapping[str, Any]]
) -> list[dict[str, str]]:
    """Collect the stages' own warnings, and then the report's.

    Args:
        records: Every stage.
        trained: Digests of the training stages. If none has a share of correct responses, the
            share in the last grading stage is checked instead.
    """
    found = [
        {"stage": record.key, "text": str(text)}
        for record in records
        for text in (record.manifest or {}).get("warnings") or []
    ]
    texts = [text for digest in trained for text in training.warnings_about(dict(digest))]
    texts += programs.warnings_about(records)
    texts += rl_digest.warnings_about(records)
    graded = grades(records)
    # On-policy training grades its own responses, and has a baseline.
    on_policy = any(record.files.get("rl") for record in records)
    if graded and not on_policy and all(digest["correct_share"] is None for digest in trained):
        texts += _few_correct(**graded[-1])
    return found + [{"stage": "report", "text": text} for text in texts]


def _few_correct(key: str, verdicts: Mapping[str, int]) -> list[str]:
    """Return a warning about a grading stage if less than half of its responses are correct.

    Scored responses are neither correct nor incorrect.
    """
    correct = verdicts.get("correct", 0)
    total = sum(verdicts.values()) - verdicts.get("scored", 0)
    if not total or correct / total >= 0.5:
        return []
    return [
        f"{key}: only {correct / total:.1%} of the graded responses are correct ({correct} of "
        f"{total}). Under one half, a loss without a baseline can make the model worse."
    ]


def grades(records: Sequence[StageRecord]) -> list[dict[str, Any]]:
    """Count responses by verdict, in one entry per grading stage."""
    return [
        {"key": record.key, "verdicts": record.files["verdict_counts"]}
        for record in records
        if record.files.get("verdict_counts")
    ]


def contamination(record: StageRecord) -> dict[str, Any]:
    """Return a contamination check's results: numbers of hits by rule and by threshold."""
    hits = record.files.get("hits") or []
    rules = Counter(str(hit.get("rule")) for hit in hits)
    threshold = finite(record.config.get("threshold"))
    sweep = sorted((record.files.get("sweep") or {}).items(), key=lambda item: float(item[0]))
    return {
        "key": record.key,
        "problems": record.counts.get("read"),
        "removed": (record.counts.get("read") or 0) - (record.counts.get("kept") or 0),
        "dropped": dict(record.counts.get("dropped") or {}),
        "hits": len(hits),
        "rules": dict(sorted(rules.items())),
        "settings": _settings(record.config),
        "sweep": [
            {"threshold": text, "used": float(text) == threshold, "flagged": dict(flagged)}
            for text, flagged in sweep
        ],
        "examples": [
            {name: str(hit[name])[:HIT_CHARACTERS] for name in HIT_COLUMNS if name in hit}
            for hit in hits[:HITS_SHOWN]
        ],
    }


def _settings(config: Mapping[str, Any]) -> dict[str, bool | int | float | str]:
    """Return the settings whose value is a number, a text or a truth value, sorted by name."""
    return {
        name: value
        for name, value in sorted(config.items())
        if isinstance(value, bool | int | float | str)
    }


def length_tables(record: StageRecord) -> list[dict[str, Any]]:
    """Return a stage's length histograms: one of rows and one of problems.

    Each names the library that counted tokens, and how many texts ``tokenizers`` checked.
    """
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
    """Return a text: which library counted tokens, and how many texts ``tokenizers`` checked."""
    counter = (record.counts.get("info") or {}).get("tokens") or {}
    if not counter:
        return ""
    counted_by = f"counted by {counter['library']}"
    if "checked" in counter:
        counted_by += f", {counter['checked']} of {counter['texts']} checked"
    return counted_by


def choices(records: Sequence[StageRecord], recipe: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the choices between contradicting sources, of every recipe in this run."""
    by_recipe = {
        record.recipe: record.manifest.get("choices") or {} for record in records if record.manifest
    }
    by_recipe[str(recipe.get("name", ""))] = recipe.get("choices") or {}
    return [
        {"recipe": name, "choice": str(choice), "use": str(use)}
        for name, chosen in by_recipe.items()
        for choice, use in chosen.items()
    ]
