"""Stage ``evaluate``: n responses per question, graded by rule, and each benchmark's scores.

generations.jsonl, one line per question, in the format that LLMEval reads and writes:

    {"id": "embedded-0001", "benchmark": "benchmark", "prompt": "Tom has …", "answer": "11",
     "gen": ["<think>…"], "accuracy": [1.0], "finish_reason": ["stop"]}
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from pcl_reasoner.core.stage import Counts, StageContext
from pcl_reasoner.evaluate.benchmark import Question, check_shipped, read_benchmark
from pcl_reasoner.evaluate.results import Graded
from pcl_reasoner.evaluate.summary import grade_sample, summary
from pcl_reasoner.inference.settings import SamplingConfig
from pcl_reasoner.stages import inputs_of

if TYPE_CHECKING:
    from pcl_reasoner.inference.response_log import ResponseLog

_LOG = "generations.partial.jsonl"


class EvaluateConfig(SamplingConfig):
    """How a model is evaluated: the sampling fields, with more responses per question."""

    n: int = Field(32, gt=0)
    """Responses per question; scores are averages over them."""

    model_role: ClassVar[str] = "model"


def evaluate(
    config: EvaluateConfig, inputs: Mapping[str, Path], output: Path, context: StageContext
) -> Counts:
    """Answer and grade benchmarks; write generations.jsonl, scores.json, per_problem.parquet.

    Args:
        config: The sampling fields.
        inputs: ``model`` (a Hugging Face folder), ``benchmark`` or several ``benchmark.<name>``.
            Optional: ``contamination``, the check of the training data; then scores without
            contaminated questions are added.
        output: The stage's folder; responses that a killed run left in it are kept.
        context: ``placement.server_urls`` names the servers, or ``placement.sampling`` says how to
            start one.

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
        _answer_and_grade(config, benchmarks, inputs, output, context)
    found = json.loads(written.read_text(encoding="utf-8"))
    total = sum(map(len, benchmarks.values())) * config.n
    info = {"engine": config.engine, "scores": found["benchmarks"], **found["responses"]}
    return Counts(unit="responses", read=total, kept=total, info=info)


def _answer_and_grade(
    config: EvaluateConfig,
    benchmarks: Mapping[str, Sequence[Question]],
    inputs: Mapping[str, Path],
    output: Path,
    context: StageContext,
) -> None:
    from pcl_reasoner.core.artifact import write_json
    from pcl_reasoner.inference.dialogue import Problem
    from pcl_reasoner.sample.generate import describe, generate

    questions = [question for group in benchmarks.values() for question in group]
    problems = [Problem(question.key, question.problem) for question in questions]
    sampling = describe(config, inputs["model"])
    records = generate(problems, config, inputs["model"], output / _LOG, context)
    graded = _grade_all(config, questions, records, output / "generations.jsonl")
    contaminated = _contaminated(inputs.get("contamination"))
    scores = {
        name: benchmark_scores([one for one in graded if one[0].benchmark == name], contaminated)
        for name in benchmarks
    }
    _write_per_problem(output / "per_problem.parquet", graded)
    content = {"benchmarks": scores, "sampling": sampling, "responses": records.info()}
    write_json(output / "scores.json", content)
    records.delete()


def _contaminated(check: Path | None) -> set[tuple[str, str]] | None:
    """Return (benchmark, id) of the questions that ``check`` found; None if there is no check."""
    if check is None:
        return None
    with (check / "hits.jsonl").open(encoding="utf-8") as lines:
        hits = [json.loads(line) for line in lines]
    return {(hit["benchmark"], hit["benchmark_id"]) for hit in hits}


def _grade_all(
    config: EvaluateConfig, questions: Sequence[Question], records: ResponseLog, file: Path
) -> list[Graded]:
    """Grade the responses to each question, and write them to generations.jsonl (``file``)."""
    graded = []
    with file.open("w", encoding="utf-8") as handle:
        for question in questions:
            found = list(records.read([(question.key, index) for index in range(config.n)]))
            truth = question.answer
            samples = [
                grade_sample(one["response"], truth, one["finish_reason"], one["n_tokens"])
                for one in found
            ]
            graded.append((question, samples))
            line = {
                "id": question.id,
                "benchmark": question.benchmark,
                "prompt": question.problem + config.suffix,
                "answer": truth,
                "gen": [one["response"] for one in found],
                "accuracy": [float(sample.correct) for sample in samples],
                "finish_reason": [sample.finish_reason for sample in samples],
            }
            handle.write(json.dumps(line, ensure_ascii=False) + "\n")
    return graded


def benchmark_scores(
    graded: Sequence[Graded], contaminated: set[tuple[str, str]] | None
) -> dict[str, Any]:
    """Return a benchmark's scores; after a check, also its scores without contaminated questions.

    Training problems that match a contaminated question were removed. But similar problems, which
    the check did not find, are more likely for these questions than for others. The base model's
    own training data may contain them, too.

    Args:
        graded: The benchmark's questions.
        contaminated: (benchmark, id) of the questions that the contamination check found in the
            training data; None: no check was given.
    """
    figures = summary([samples for _, samples in graded])
    if contaminated is None:
        return figures
    clean = [found for one, found in graded if (one.benchmark, one.id) not in contaminated]
    without = summary(clean) if clean else None
    left_out = len(graded) - len(clean)
    return {**figures, "contaminated_problems": left_out, "without_contaminated": without}


def _write_per_problem(path: Path, graded: Sequence[Graded]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from pcl_reasoner.core.schemas import PER_PROBLEM

    rows = []
    for question, samples in graded:
        n, correct = len(samples), sum(sample.correct for sample in samples)
        names = {"benchmark": question.benchmark, "id": question.id}
        rows.append({**names, "n": n, "correct": correct, "avg": correct / n})
    pq.write_table(pa.Table.from_pylist(rows, schema=PER_PROBLEM), path, compression="zstd")
