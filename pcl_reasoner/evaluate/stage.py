"""Stage ``evaluate``: n responses per question, graded by its kind, and each benchmark's scores.

generations.jsonl, one line per question, in the format that LLMEval reads and writes:

    {"id": "embedded-0001", "benchmark": "benchmark", "prompt": "Tom has …", "answer": "11",
     "gen": ["<think>…"], "accuracy": [1.0], "finish_reason": ["stop"]}
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field, model_validator

from pcl_reasoner.core.json_lines import own_json
from pcl_reasoner.core.kinds import suffix_of
from pcl_reasoner.core.stage import NOT_HASHED, Counts, StageContext
from pcl_reasoner.evaluate.benchmark import (
    Benchmark,
    Question,
    check_shipped,
    read_benchmark,
)
from pcl_reasoner.evaluate.grading import Grading, check_sandbox
from pcl_reasoner.evaluate.results import Graded
from pcl_reasoner.evaluate.summary import summary
from pcl_reasoner.formats.records import Dates
from pcl_reasoner.inference.settings import SamplingConfig
from pcl_reasoner.sandbox.config import SandboxConfig
from pcl_reasoner.stages import inputs_of
from pcl_reasoner.verifiers.kept_checks import KeptChecks

_LOG = "generations.partial.jsonl"


class BenchmarkSandbox(SandboxConfig):
    """What programs may use in an evaluation: as LiveCodeBench's own grader.

    That gives each test 6 s, too; the time for which our tests wait for a processor does not count,
    and they run in processes of their own, with the program compiled before. Its comment says 4 GB
    of memory, and its code sets no limit.

    Source: LiveCodeBench, lcb_runner/evaluation/testing_util.py.
    """

    megabytes: int = Field(4096, ge=64)
    """MiB of memory; a problem's own limit counts as for ``seconds``."""


class EvaluateConfig(SamplingConfig):
    """How a model is evaluated: the sampling fields, with more responses per question."""

    n: int = Field(32, gt=0)
    """Responses per question; scores are averages over them."""
    max_failed: Annotated[float, NOT_HASHED] = Field(0.0, ge=0, le=1)
    """Share of failed responses above which the stage stops; a failure counts as incorrect. 0: no
    benchmark's score has an answer that failed."""

    sandbox: BenchmarkSandbox = BenchmarkSandbox()
    """Limits of programs, for benchmarks with tests (LiveCodeBench)."""
    contest_since: date | None = None
    """LiveCodeBench's questions of earlier contests are not asked, e.g. before 2024-10-01."""
    contest_before: date | None = None
    """LiveCodeBench's questions of contests on this day or later are not asked."""

    model_role: ClassVar[str] = "model"

    @model_validator(mode="after")
    def _contests_have_dates(self) -> EvaluateConfig:
        self.contests()
        return self

    def contests(self) -> Dates:
        """Return the days of the contests whose questions are asked."""
        return Dates(self.contest_since, self.contest_before)


def evaluate(
    config: EvaluateConfig, inputs: Mapping[str, Path], output: Path, context: StageContext
) -> Counts:
    """Answer and grade benchmarks; write generations.jsonl, scores.json, per_problem.parquet.

    Args:
        config: The sampling fields.
        inputs: ``model`` (a Hugging Face folder), ``benchmark`` or several ``benchmark.<name>``.
            Optional: ``contamination``, the check of the training data; then scores without
            contaminated questions are added; ``proof``, what a stage `prove` of the model wrote:
            every start of a server is compared with it first.
        output: The stage's folder; responses that a killed run left in it are kept.
        context: ``placement.server_urls`` names the servers, or ``placement.sampling`` says how to
            start one.

    Raises:
        StageError: A benchmark cannot be read, or the engine fails.
    """
    files = inputs_of(inputs, "benchmark")
    with KeptChecks(output) as kept:
        benchmarks = {
            name: read_benchmark(name, path, kept, config.contests())
            for name, path in files.items()
        }
        for name, benchmark in benchmarks.items():
            _check_shipped(name, benchmark.questions, context)
        written = output / "scores.json"
        # The log is deleted last: without it, an existing scores.json means that all is written.
        seconds = 0.0
        if (output / _LOG).exists() or not written.exists():
            seconds = _answer_and_grade(config, benchmarks, kept, inputs, output, context)
    found = own_json(written)
    total = sum(len(one.questions) for one in benchmarks.values()) * config.n
    info = {"engine": config.engine, "scores": found["benchmarks"], **found["responses"]}
    if seconds:
        info["request_seconds"] = round(seconds, 3)
    return Counts(unit="responses", read=total, kept=total, info=info)


def _check_shipped(name: str, questions: Sequence[Question], context: StageContext) -> None:
    unrecognised = check_shipped(name, questions)
    if unrecognised:
        context.warn(
            f"benchmark {name}: {len(unrecognised)} of {len(questions)} questions are not "
            f"recognised by their fingerprints ({', '.join(unrecognised)}), and are taken for "
            "reworded copies of the missing ones."
        )


def _answer_and_grade(
    config: EvaluateConfig,
    benchmarks: Mapping[str, Benchmark],
    kept: KeptChecks,
    inputs: Mapping[str, Path],
    output: Path,
    context: StageContext,
) -> float:
    """Write the stage's files, and return the seconds of all requests together."""
    from pcl_reasoner.core.artifact import write_json
    from pcl_reasoner.inference.dialogue import Problem
    from pcl_reasoner.sample.generate import describe, generate
    from pcl_reasoner.verifiers.logs import TEST_LOG

    questions = [question for one in benchmarks.values() for question in one.questions]
    problems = [
        Problem(question.key, question.problem, kind=question.kind) for question in questions
    ]
    check_sandbox(config.sandbox, questions, context)
    sampling = describe(config, inputs["model"])
    log, proof = output / _LOG, inputs.get("proof")
    records = generate(problems, config, inputs["model"], log, context, proof)
    grading = Grading(config.sandbox, questions, records, config.n, kept)
    grading.test(output, context)
    graded = _grade_all(config, grading, output / "generations.jsonl")
    contaminated = _contaminated(inputs.get("contamination"))
    scores = {
        name: benchmark_scores([one for one in graded if one[0].benchmark == name], contaminated)
        for name in benchmarks
    }
    for name, benchmark in benchmarks.items():
        if benchmark.outside_dates:
            scores[name]["outside_dates"] = benchmark.outside_dates
    _write_per_problem(output / "per_problem.parquet", graded)
    content = {"benchmarks": scores, "sampling": sampling, "responses": records.info()}
    if grading.described:
        content["sandbox"] = grading.described
    write_json(output / "scores.json", content)
    (output / TEST_LOG).unlink(missing_ok=True)
    records.delete()
    return records.request_seconds


def _contaminated(check: Path | None) -> set[tuple[str, str]] | None:
    """Return (benchmark, id) of the questions that ``check`` found; None if there is no check."""
    if check is None:
        return None
    with (check / "hits.jsonl").open(encoding="utf-8") as lines:
        hits = [json.loads(line) for line in lines]
    return {(hit["benchmark"], hit["benchmark_id"]) for hit in hits}


def _grade_all(config: EvaluateConfig, grading: Grading, file: Path) -> list[Graded]:
    """Grade the responses to each question, and write them to generations.jsonl (``file``)."""
    graded = []
    grading.prepare()
    with file.open("w", encoding="utf-8") as handle:
        for question in grading.questions:
            found = grading.responses(question)
            samples = grading.samples(question, found)
            graded.append((question, samples))
            line = {
                "id": question.id,
                "benchmark": question.benchmark,
                "prompt": question.problem + suffix_of(config.suffix, question.kind),
                "answer": question.answer,
                "gen": [one["response"] for one in found],
                "accuracy": [float(sample.correct) for sample in samples],
                "finish_reason": [sample.finish_reason for sample in samples],
            }
            if question.kind != "math":
                line["kind"] = question.kind
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
    kinds = sorted({question.kind for question, _ in graded})
    figures = {"kinds": kinds, **summary([samples for _, samples in graded])}
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
