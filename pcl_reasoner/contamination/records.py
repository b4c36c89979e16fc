"""Writes the evidence of a check: hits, near misses, near-duplicates, the sweep and the page.

    hits.jsonl  {"benchmark": "aime24", "benchmark_id": "aime-2024-I-01", "benchmark_problem":
                 "Every morning Aya …", "cosine": 0.9873, "file": "problems.parquet", "ngrams": 1.0,
                 "problem": "Every morning Ada …", "problem_id": "0f3a…", "row": 17,
                 "rule": "both", "window": 0}

``row`` is 0-based over all rows of the input, in source order. ``file`` is the file of that row.
``benchmark_problem`` is null if only the question's fingerprint is available.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcl_reasoner.contamination.comparison import NEAR_MISSES
from pcl_reasoner.contamination.evidence import render
from pcl_reasoner.contamination.findings import Findings, near_misses, sweep
from pcl_reasoner.contamination.review import ALLOW, DENY, review_lines

if TYPE_CHECKING:
    from pcl_reasoner.contamination.config import ContaminationConfig
    from pcl_reasoner.contamination.reading import Rows

CONTAMINATED, DENIED, REPEATED = "contaminated", "denied", "near_duplicate"


def reasons(rows: Rows, findings: Findings, review: Mapping[str, str]) -> list[str | None]:
    """The reason for dropping each row; None: the row is kept.

    Args:
        rows: The rows, from ``read_rows``.
        findings: The check's result for these rows.
        review: problem_id -> allow or deny. allow keeps a flagged row, and deny drops an unflagged
            one. allow does not keep a near-duplicate.
    """
    found: list[str | None] = []
    for text, problem in zip(findings.text_of_row, rows.problem_id, strict=True):
        decision = review.get(problem)
        if findings.matches[text].rule is not None:
            found.append(None if decision == ALLOW else CONTAMINATED)
        elif decision == DENY:
            found.append(DENIED)
        else:
            found.append(REPEATED if text in findings.duplicates else None)
    return found


def write_evidence(
    output: Path,
    rows: Rows,
    findings: Findings,
    config: ContaminationConfig,
    review: Mapping[str, str],
) -> dict[str, Any]:
    """Write all files of a check except the clean rows.

    Args:
        output: Existing folder.
        rows: The rows, from ``read_rows``.
        findings: The check's result for these rows.
        config: The limits that were used.
        review: problem_id -> allow or deny.

    Returns:
        Figures for the report: hits by rule and by benchmark, threshold, number of benchmark
        questions, embedder, encoding, and the counts of the reviewer's decisions.
    """
    hits, misses = _hits(rows, findings, review), _misses(rows, findings)
    by_threshold = sweep(findings, config)
    _write_lines(output / "hits.jsonl", hits)
    _write_lines(output / "near_misses.jsonl", misses)
    _write_lines(output / "review.jsonl", review_lines([*hits, *misses], review))
    if config.near_duplicates is not None:
        _write_lines(output / "near_duplicates.jsonl", _repeats(rows, findings))
    text = json.dumps(by_threshold, indent=1, sort_keys=True) + "\n"
    (output / "sweep.json").write_text(text, encoding="utf-8")
    page = render(hits, misses, by_threshold, config)
    (output / "evidence.html").write_text(page, encoding="utf-8")
    present = set(rows.problem_id)
    return {
        "by_rule": dict(sorted(Counter(hit["rule"] for hit in hits).items())),
        "by_benchmark": dict(sorted(Counter(hit["benchmark"] for hit in hits).items())),
        "threshold": config.threshold,
        "benchmark_questions": len(findings.questions),
        "embedder": findings.embedder,
        **({"encoding": findings.encoding} if findings.encoding else {}),
        **({"review": _obeyed(review, present)} if review else {}),
    }


def _obeyed(review: Mapping[str, str], present: set[str]) -> dict[str, int]:
    """Count decisions by kind, and decisions on problems that are not in the input."""
    kinds = Counter(review[problem] for problem in review if problem in present)
    return {**dict(sorted(kinds.items())), "not_here": len(set(review) - present)}


def _record(rows: Rows, findings: Findings, row: int) -> dict[str, Any]:
    match = findings.matches[findings.text_of_row[row]]
    question = findings.questions[match.question]
    return {
        "row": rows.number[row],
        "file": rows.file[row],
        "problem_id": rows.problem_id[row],
        "problem": rows.problem[row],
        "benchmark": question.benchmark,
        "benchmark_id": question.id,
        "benchmark_problem": question.text,
        "cosine": match.cosine,
        "window": match.window,
        "ngrams": match.containment,
        "rule": match.rule,
    }


def _hits(rows: Rows, findings: Findings, review: Mapping[str, str]) -> list[dict[str, Any]]:
    """Records of flagged rows; a row that a reviewer allowed has ``"decision": "allow"``."""
    hits = []
    for row, text in enumerate(findings.text_of_row):
        if findings.matches[text].rule is not None:
            record = _record(rows, findings, row)
            if review.get(rows.problem_id[row]) == ALLOW:
                record["decision"] = ALLOW
            hits.append(record)
    return hits


def _misses(rows: Rows, findings: Findings) -> list[dict[str, Any]]:
    """Records of the closest unflagged problems, one per distinct problem (its first row)."""
    first: dict[int, int] = {}
    for row, text in enumerate(findings.text_of_row):
        first.setdefault(text, row)
    return [
        _record(rows, findings, first[text]) for text in near_misses(findings.matches, NEAR_MISSES)
    ]


def _repeats(rows: Rows, findings: Findings) -> list[dict[str, Any]]:
    """Records of rows that nearly repeat an earlier one, with the cosine of the pair."""
    return [
        {
            "row": rows.number[row],
            "file": rows.file[row],
            "problem_id": rows.problem_id[row],
            "problem": rows.problem[row],
            "kept_problem": findings.texts[duplicate.kept],
            "cosine": duplicate.cosine,
        }
        for row, text in enumerate(findings.text_of_row)
        if (duplicate := findings.duplicates.get(text)) is not None
    ]


def _write_lines(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """Write JSONL with sorted keys, so that equal records give equal bytes."""
    lines = (json.dumps(record, sort_keys=True, ensure_ascii=False) for record in records)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
