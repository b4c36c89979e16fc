"""Writes the evidence of a check: hits, near misses, near-duplicates, threshold sweep and page.

    hits.jsonl  {"benchmark": "aime24", "benchmark_id": "aime-2024-I-01", "benchmark_problem":
                 "Every morning Aya …", "cosine": 0.9873, "file": "problems.parquet", "ngrams": 1.0,
                 "log_odds": 6.1, "problem": "Every morning Ada …", "problem_id": "0f3a…",
                 "row": 17, "rule": "embedding+ngrams+likeness", "shared": ["2", "9", ":speed"],
                 "window": 0}

``row`` is 0-based over all rows of the input, in source order. ``file`` is the file of that row.
``benchmark_problem`` is null if only the question's fingerprint is available.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Any

from pcl_reasoner.contamination.comparison import NEAR_MISSES
from pcl_reasoner.contamination.config import ContaminationConfig
from pcl_reasoner.contamination.evidence import render
from pcl_reasoner.contamination.findings import Findings, near_misses, sweep
from pcl_reasoner.contamination.reading import ProblemRows
from pcl_reasoner.contamination.review import ALLOW, DENY, read_review, review_lines
from pcl_reasoner.core.artifact import write_json
from pcl_reasoner.prompt.question_text import strip_template
from pcl_reasoner.signature.index import in_common

CONTAMINATED, DENIED, REPEATED = "contaminated", "denied", "near_duplicate"


@dataclass(frozen=True)
class Checked:
    """The result of checking a data set; the reviewer's decisions are applied.

    Args:
        output: Folder with the evidence.
        read: Rows read.
        clean: Row numbers of the kept rows.
        dropped: Reason -> number of rows.
        info: Figures for the report: hits by rule and by benchmark, threshold, number of benchmark
            questions, embedder, encoding, and the number of reviewer's decisions by kind.
        hits: Records of hits.jsonl.
        misses: Records of near_misses.jsonl.
    """

    output: Path
    read: int
    clean: set[int]
    dropped: dict[str, int]
    info: dict[str, Any]
    hits: list[dict[str, Any]]
    misses: list[dict[str, Any]]


def reasons(rows: ProblemRows, findings: Findings, review: Mapping[str, str]) -> list[str | None]:
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
    output: Path, rows: ProblemRows, findings: Findings, config: ContaminationConfig
) -> Checked:
    """Apply the reviewer's decisions, and write all files of a check except the clean rows.

    Args:
        output: Existing folder.
        rows: The rows, from ``read_rows``.
        findings: The check's result for these rows.
        config: The limits that were used, and the file with the reviewer's decisions.

    Raises:
        InputError: The file with the reviewer's decisions is malformed.
    """
    review = read_review(Path(config.review)) if config.review else {}
    hits, misses = _hits(rows, findings, review), _misses(rows, findings)
    by_threshold = sweep(findings, config)
    _write_lines(output / "hits.jsonl", hits)
    _write_lines(output / "near_misses.jsonl", misses)
    _write_lines(output / "review.jsonl", review_lines([*hits, *misses], review))
    if config.near_duplicates is not None:
        _write_lines(output / "near_duplicates.jsonl", _repeats(rows, findings))
    write_json(output / "sweep.json", by_threshold)
    page = render(hits, misses, by_threshold, config, findings.facts().get("judge"))
    (output / "evidence.html").write_text(page, encoding="utf-8")
    row_reasons = reasons(rows, findings, review)
    kept = (reason is None for reason in row_reasons)
    dropped = Counter(filter(None, (*row_reasons, *rows.refused.values())))
    return Checked(
        output=output,
        read=rows.read,
        clean=set(compress(rows.number, kept)),
        dropped=dict(dropped),
        info={
            "by_rule": _counted(hit["rule"] for hit in hits),
            "by_benchmark": _counted(hit["benchmark"] for hit in hits),
            "threshold": config.threshold,
            **findings.facts(),
            **({"review": _applied(review, set(rows.problem_id))} if review else {}),
        },
        hits=hits,
        misses=misses,
    )


def _applied(review: Mapping[str, str], present: set[str]) -> dict[str, int]:
    """Count decisions by kind; a decision on a problem outside the input counts as ``not_here``."""
    kinds = _counted(review[problem] for problem in review if problem in present)
    return {**kinds, "not_here": len(set(review) - present)}


def _counted(values: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(values).items()))


def _record(rows: ProblemRows, findings: Findings, row: int) -> dict[str, Any]:
    match = findings.matches[findings.text_of_row[row]]
    question = findings.questions[match.question]
    text = strip_template(findings.texts[findings.text_of_row[row]])
    shared = None if match.log_odds is None else in_common(text, question.signature)
    return {
        **rows.origin(row),
        "benchmark": question.benchmark,
        "benchmark_id": question.id,
        "benchmark_problem": question.text,
        "cosine": match.cosine,
        "window": match.window,
        "ngrams": match.containment,
        "log_odds": match.log_odds,
        "shared": shared,
        "rule": match.rule,
        **findings.verdicts(findings.text_of_row[row]),
    }


def _hits(rows: ProblemRows, findings: Findings, review: Mapping[str, str]) -> list[dict[str, Any]]:
    """Records of flagged rows; a row that a reviewer allowed has ``"decision": "allow"``."""
    flagged = [row for row, text in enumerate(findings.text_of_row) if findings.matches[text].rule]
    hits = [_record(rows, findings, row) for row in flagged]
    for hit in hits:
        if review.get(hit["problem_id"]) == ALLOW:
            hit["decision"] = ALLOW
    return hits


def _misses(rows: ProblemRows, findings: Findings) -> list[dict[str, Any]]:
    """Records of the problems that the judge cleared, and of those closest to a question.

    They are the unflagged problems, each with its first row.
    """
    cleared = findings.judged.cleared if findings.judged else {}
    closest = near_misses(findings.matches, NEAR_MISSES + len(cleared))
    others = [text for text in closest if text not in cleared][:NEAR_MISSES]
    chosen = [*cleared, *others]
    return [_record(rows, findings, findings.text_of_row.index(text)) for text in chosen]


def _repeats(rows: ProblemRows, findings: Findings) -> list[dict[str, Any]]:
    """Records of rows that nearly repeat an earlier one, with the cosine of the pair."""
    return [
        {
            **rows.origin(row),
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
