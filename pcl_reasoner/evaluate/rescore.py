"""Grades result files again by our rule, and lists the samples whose score in the file differs.

disputed.jsonl  {"benchmark": "aime24", "id": "aime-2024-I-01", "sample": 3, "answer": "204",
                 "graded": "204", "outcome": "correct", "recorded": 0.0, "end": "… \\\\boxed{204}"}
graded.jsonl    the same fields without ``end``, for every sample

The lines of both files also have ``model`` and ``tokens``.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcl_reasoner.core.artifact import remove_unfinished, write_atomically
from pcl_reasoner.evaluate.results import CountTokens, Graded, Refused, read_results
from pcl_reasoner.evaluate.scores import average, interval_95, paired_difference
from pcl_reasoner.evaluate.summary import Sample, summary
from pcl_reasoner.evaluate.verdict import separable, verdicts


@dataclass(frozen=True)
class Rescored:
    """A file's results on one benchmark.

    Args:
        model: Name of the file's model.
        benchmark: aime24, aime25 or another name.
        graded: Question id -> question and graded samples, in the file's order.
        refused: Lines of the file that could not be read.
        figures: The figures of ``summary``, the score recorded in the file, the numbers of disputed
            samples and refused lines, and the comparisons with published scores.
    """

    model: str
    benchmark: str
    graded: dict[str, Graded]
    refused: list[Refused]
    figures: dict[str, Any]


def rescore(
    path: Path, model: str, benchmark: str | None = None, count_tokens: CountTokens | None = None
) -> list[Rescored]:
    """Grade a result file again; return one Rescored per benchmark in the file.

    Args:
        path: As for ``read_results``.
        model: Name of the model that gave the responses.
        benchmark: As for ``read_results``.
        count_tokens: Text -> number of tokens; None: lengths stay unknown.
    """
    found, refused = read_results(path, benchmark, count_tokens)
    return [
        Rescored(model, name, graded, refused, {**_figures(name, graded), "refused": len(refused)})
        for name, graded in found.items()
    ]


def _figures(benchmark: str, graded: dict[str, Graded]) -> dict[str, Any]:
    samples = [group for _, group in graded.values()]
    figures = summary(samples)
    scored = [[one.recorded for one in group if one.recorded is not None] for group in samples]
    complete = list(map(len, scored)) == list(map(len, samples))
    error, n = figures["sampling_error"], figures["n"]
    return {
        **figures,
        "recorded": average(scored) if complete else None,
        "disputed": sum(one.disputed for group in samples for one in group),
        "uneven": len({len(group) for group in samples}) > 1,
        "verdicts": [vars(v) for v in verdicts(benchmark, figures["avg_at_n"], error, n)],
        "separable": separable(figures["problems"], figures["standard_error"]),
    }


def compare(first: Rescored, second: Rescored) -> dict[str, Any] | None:
    """Compare ``second`` with ``first`` on the questions of a benchmark that both models answered.

    Returns:
        An entry of ``comparisons`` in scores.json; None if there is no such question.
    """
    sides = [first.graded, second.graded]
    shared = [name for name in sides[0] if name in sides[1]]
    if not shared:
        return None
    correct = [[[sample.correct for sample in side[name][1]] for name in shared] for side in sides]
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
        return "no difference shown"
    return "better" if difference > 0 else "worse"


def write(found: Sequence[Rescored], output: Path) -> dict[str, Any]:
    """Write graded.jsonl, disputed.jsonl, refused.jsonl and scores.json.

    Returns:
        The content of scores.json. ``scores`` has one entry per file and benchmark; ``comparisons``
        compares each entry with the first entry of its benchmark.
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
        for number, reason, raw in one.refused
    ]
    for name, lines in (("graded", graded), ("disputed", disputed), ("refused", refused)):
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        remove_unfinished(output / f"{name}.jsonl")
        write_atomically(output / f"{name}.jsonl", text)
    firsts: dict[str, Rescored] = {}
    pairs = [(firsts.setdefault(one.benchmark, one), one) for one in found]
    compared = [compare(first, one) for first, one in pairs if first is not one]
    scores = {
        "scores": [
            {"model": one.model, "benchmark": one.benchmark, **one.figures} for one in found
        ],
        "comparisons": [pair for pair in compared if pair is not None],
    }
    text = json.dumps(scores, indent=1, sort_keys=True) + "\n"
    remove_unfinished(output / "scores.json")
    write_atomically(output / "scores.json", text)
    return scores


def _records(one: Rescored) -> Iterator[tuple[Sample, dict[str, Any]]]:
    for question, samples in one.graded.values():
        for index, sample in enumerate(samples):
            names = {"model": one.model, "benchmark": one.benchmark, "id": question.id}
            answers = {"sample": index, "answer": question.answer, "graded": sample.answer}
            verdict = {"outcome": sample.outcome, "recorded": sample.recorded}
            yield sample, {**names, **answers, **verdict, "tokens": sample.tokens}
