"""Grades released result files again: the file's verdicts, our rule's, and where they differ.

disputed.jsonl  {"benchmark": "aime24", "id": "aime-2024-I-01", "sample": 3, "answer": "204",
                 "graded": "204", "outcome": "correct", "recorded": 0.0, "end": "… \\\\boxed{204}"}
graded.jsonl    the same fields without ``end``, for every sample

Lines of both also have ``model`` and ``tokens``.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcl_reasoner.core.artifact import write_atomically
from pcl_reasoner.evaluate.results import CountTokens, Results, in_order, read_results
from pcl_reasoner.evaluate.scores import average, interval_95, paired_difference
from pcl_reasoner.evaluate.summary import Sample, summary
from pcl_reasoner.evaluate.verdict import separable, verdicts

_AIME = re.compile(r"aime[-_ ]?(?:20)?(24|25)", re.IGNORECASE)


@dataclass(frozen=True)
class Rescored:
    """The results of one file.

    Args:
        model: Name of the file's model.
        benchmark: aime24, aime25 or another name.
        results: Questions and samples.
        figures: Those of ``summary``, the score that the file recorded, counts of disputed samples
            and refused lines, and the verdicts.
    """

    model: str
    benchmark: str
    results: Results
    figures: dict[str, Any]


def benchmark_of(path: Path) -> str:
    """The benchmark in a file's name: aime24, aime25, or the name without its suffix."""
    found = _AIME.search(path.name)
    return f"aime{found[1]}" if found else path.stem


def rescore(
    path: Path, model: str, benchmark: str, count_tokens: CountTokens | None = None
) -> Rescored:
    """Grade a result file again.

    Args:
        path: As for ``read_results``.
        model: Name for its model.
        benchmark: Name for its questions.
        count_tokens: Gives a response's length; None: lengths are not known.
    """
    results = read_results(path, benchmark, count_tokens)
    samples = [group for _, group in in_order(results)]
    figures = summary(samples)
    scored = [[one.recorded for one in group if one.recorded is not None] for group in samples]
    complete = list(map(len, scored)) == list(map(len, samples))
    error, n = figures["sampling_error"], figures["n"]
    extra = {
        "recorded": average(scored) if complete else None,
        "disputed": sum(one.disputed for group in samples for one in group),
        "refused": len(results.refused),
        "uneven": len({len(group) for group in samples}) > 1,
        "verdicts": [vars(v) for v in verdicts(benchmark, figures["avg_at_n"], error, n)],
        "separable": separable(figures["problems"], figures["standard_error"]),
    }
    return Rescored(model, benchmark, results, {**figures, **extra})


def compare(first: Rescored, second: Rescored) -> dict[str, Any] | None:
    """Compare second with first on the questions that both answered.

    Returns:
        An entry of ``comparisons``; None if there is no such question or the benchmarks differ.
    """
    shared = [name for name in first.results.samples if name in second.results.samples]
    if not shared or first.benchmark != second.benchmark:
        return None
    correct = [
        [[one.correct for one in side.results.samples[name]] for name in shared]
        for side in (first, second)
    ]
    difference, clustered, sampling = paired_difference(*correct)
    return {
        "first": first.model,
        "second": second.model,
        "benchmark": first.benchmark,
        "problems": len(shared),
        "difference": difference,
        "clustered_error": clustered,
        "sampling_error": sampling,
        "outcome": _outcome(difference, sampling),
        "outcome_elsewhere": _outcome(difference, clustered),
    }


def _outcome(difference: float, error: float | None) -> str:
    bounds = interval_95(abs(difference), error)
    if bounds is None or bounds[0] <= 0:
        return "cannot be told apart"
    return "better" if difference > 0 else "worse"


def write(found: Sequence[Rescored], output: Path) -> dict[str, Any]:
    """Write graded.jsonl, disputed.jsonl, refused.jsonl and scores.json.

    Returns:
        The content of scores.json: ``scores``, one entry per file, and ``comparisons`` of each file
        with the first one of its benchmark.
    """
    graded, disputed = [], []
    for one in found:
        for sample, record in _records(one):
            graded.append(record)
            if sample.disputed:
                disputed.append({**record, "end": sample.end})
    refused = [
        {"model": one.model, "line": number, "reason": reason, "raw": raw}
        for one in found
        for number, reason, raw in one.results.refused
    ]
    for name, lines in (("graded", graded), ("disputed", disputed), ("refused", refused)):
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        write_atomically(output / f"{name}.jsonl", text)
    pairs = [compare(first, one) for first, one in _pairs(found)]
    scores = {
        "scores": [
            {"model": one.model, "benchmark": one.benchmark, **one.figures} for one in found
        ],
        "comparisons": [pair for pair in pairs if pair is not None],
    }
    text = json.dumps(scores, indent=1, sort_keys=True) + "\n"
    write_atomically(output / "scores.json", text)
    return scores


def _pairs(found: Sequence[Rescored]) -> Iterator[tuple[Rescored, Rescored]]:
    """Each file's results with those of the first file of its benchmark."""
    firsts: dict[str, Rescored] = {}
    for one in found:
        first = firsts.setdefault(one.benchmark, one)
        if first is not one:
            yield first, one


def _records(one: Rescored) -> Iterator[tuple[Sample, dict[str, Any]]]:
    for question, samples in in_order(one.results):
        for index, sample in enumerate(samples):
            yield (
                sample,
                {
                    "model": one.model,
                    "benchmark": one.benchmark,
                    "id": question.id,
                    "sample": index,
                    "answer": question.answer,
                    "graded": sample.answer,
                    "outcome": sample.outcome,
                    "recorded": sample.recorded,
                    "tokens": sample.tokens,
                },
            )
