"""Stage ``evaluate``: n responses per question, graded by rule, and each benchmark's scores.

generations.jsonl, one line per question, in the format that LLMEval reads and writes:

    {"id": "embedded-0001", "benchmark": "benchmark", "prompt": "Tom has …", "answer": "11",
     "gen": ["<think>…"], "accuracy": [1.0], "finish_reason": ["stop"]}
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcl_reasoner.core.stage import Counts, StageContext
from pcl_reasoner.evaluate.benchmark import Question, check_shipped, read_benchmark
from pcl_reasoner.evaluate.config import EvaluateConfig
from pcl_reasoner.evaluate.summary import Sample, grade_sample, summary
from pcl_reasoner.stages import inputs_of

if TYPE_CHECKING:
    from pcl_reasoner.inference.response_log import ResponseLog

_LOG = "generations.partial.jsonl"


Graded = tuple[Question, list[Sample]]
"""A question with its graded samples, in the order of sample_index."""


def evaluate(
    config: EvaluateConfig, inputs: Mapping[str, Path], output: Path, context: StageContext
) -> Counts:
    """Answer and grade benchmarks; write generations.jsonl, scores.json, per_problem.parquet.

    Args:
        config: The sampling fields.
        inputs: ``model`` (a Hugging Face folder), ``benchmark`` or several ``benchmark.<name>``.
            Optional: ``contamination``, a check of the training data; scores without the questions
            that it found there are then added.
        output: The stage's folder; responses of a killed run in it are kept.
        context: ``placement.server_urls`` names the servers.

    Raises:
        StageError: A benchmark cannot be read, or the engine fails.
    """
    benchmarks = {
        name: read_benchmark(name, path) for name, path in inputs_of(inputs, "benchmark").items()
    }
    for name, questions in benchmarks.items():
        unrecognised = check_shipped(name, questions)
        if unrecognised:
            context.warn(
                f"benchmark {name}: {len(unrecognised)} of {len(questions)} questions are not "
                f"recognised by their fingerprints ({', '.join(unrecognised)}), and are taken for "
                "reworded copies of the missing ones."
            )
    written = output / "scores.json"
    # The log is deleted last: without it, an existing scores.json means that all is written.
    if (output / _LOG).exists() or not written.exists():
        check = inputs.get("contamination")
        contaminated = contaminated_questions(check) if check else None
        _answer_and_grade(config, benchmarks, contaminated, inputs["model"], output, context)
    found = json.loads(written.read_text(encoding="utf-8"))
    total = sum(map(len, benchmarks.values())) * config.n
    info = {"engine": config.engine, "scores": found["benchmarks"], **found["responses"]}
    return Counts(unit="responses", read=total, kept=total, info=info)


def _answer_and_grade(
    config: EvaluateConfig,
    benchmarks: Mapping[str, Sequence[Question]],
    contaminated: set[tuple[str, str]] | None,
    model: Path,
    output: Path,
    context: StageContext,
) -> None:
    from pcl_reasoner.core.artifact import write_json
    from pcl_reasoner.inference.dialogue import Problem
    from pcl_reasoner.sample.generate import describe, generate

    questions = [question for group in benchmarks.values() for question in group]
    problems = [Problem(question.key, question.problem) for question in questions]
    sampling = describe(config, model)
    records = generate(problems, config, model, output / _LOG, context)
    graded = _grade_all(config, questions, records, output / "generations.jsonl")
    scores = {
        name: benchmark_scores([one for one in graded if one[0].benchmark == name], contaminated)
        for name in benchmarks
    }
    _write_per_problem(output / "per_problem.parquet", graded)
    write_json(
        output / "scores.json",
        {"benchmarks": scores, "sampling": sampling, "responses": records.info()},
    )
    records.delete()


def _grade_all(
    config: EvaluateConfig, questions: Sequence[Question], records: ResponseLog, file: Path
) -> list[Graded]:
    """Grade question by question, and write the generations of each."""
    graded = []
    with file.open("w", encoding="utf-8") as handle:
        for question in questions:
            keys = [(question.key, index) for index in range(config.n)]
            found = list(records.read(keys))
            samples = [
                grade_sample(
                    record["response"], question.answer, record["finish_reason"], record["n_tokens"]
                )
                for record in found
            ]
            graded.append((question, samples))
            line = {
                "id": question.id,
                "benchmark": question.benchmark,
                "prompt": question.problem + config.suffix,
                "answer": question.answer,
                "gen": [record["response"] for record in found],
                "accuracy": [float(sample.correct) for sample in samples],
                "finish_reason": [sample.finish_reason for sample in samples],
            }
            handle.write(json.dumps(line, ensure_ascii=False) + "\n")
    return graded


def contaminated_questions(check: Path) -> set[tuple[str, str]]:
    """(benchmark, id) of the questions that a contamination check found in the training data.

    The matching problems were removed from that data. But similar problems that the check did not
    find are likelier for these questions than for others, and the base model's own training data
    may contain them too.
    """
    with (check / "hits.jsonl").open(encoding="utf-8") as handle:
        hits = [json.loads(line) for line in handle]
    return {(hit["benchmark"], hit["benchmark_id"]) for hit in hits}


def benchmark_scores(
    graded: Sequence[Graded], contaminated: set[tuple[str, str]] | None
) -> dict[str, Any]:
    """A benchmark's scores, and those without contaminated questions if a check was given.

    Args:
        graded: The benchmark's questions.
        contaminated: (benchmark, id); None: no check was given.
    """
    found = summary([samples for _, samples in graded])
    if contaminated is None:
        return found
    clean = [
        samples
        for question, samples in graded
        if (question.benchmark, question.id) not in contaminated
    ]
    without = summary(clean) if clean else None
    left_out = len(graded) - len(clean)
    return {**found, "contaminated_problems": left_out, "without_contaminated": without}


def _write_per_problem(path: Path, graded: Sequence[Graded]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from pcl_reasoner.core.schemas import PER_PROBLEM

    rows = [
        {
            "benchmark": question.benchmark,
            "id": question.id,
            "n": len(samples),
            "correct": sum(sample.correct for sample in samples),
            "avg": sum(sample.correct for sample in samples) / len(samples),
        }
        for question, samples in graded
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=PER_PROBLEM), path, compression="zstd")
