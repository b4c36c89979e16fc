"""The stage ``contamination``: drops problems that are in a benchmark, and writes the evidence.

It writes ``clean.parquet`` and the files described in records.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pcl_reasoner.contamination.config import ContaminationConfig
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.stage import Counts, StageContext
from pcl_reasoner.curate.parts import open_parquet, record_batches

if TYPE_CHECKING:
    import pyarrow as pa


def contamination(
    config: ContaminationConfig, inputs: Mapping[str, Path], output: Path, context: StageContext
) -> Counts:
    """Run the check; write the kept rows, and the evidence for the decisions."""
    from pcl_reasoner.contamination.check import check
    from pcl_reasoner.contamination.reading import read_questions, read_rows
    from pcl_reasoner.contamination.records import write_evidence
    from pcl_reasoner.second_opinion.judge import Judge
    from pcl_reasoner.stages import inputs_of

    benchmarks = inputs_of(inputs, "benchmark")
    if not (benchmarks or config.against):
        raise StageError(
            "contamination: there is nothing to compare with. Give an input benchmark, or "
            "against: [aime24, aime25]."
        )
    verdicts = context.cache / "verdicts" if context.cache else None
    asked = (context, output, verdicts, inputs.get("judge"))
    judge = None if config.judge is None else Judge(config.judge, *asked)
    files = _parquet_files(inputs["problems"])
    rows = read_rows(files, inputs["problems"], context.quarantine, "problem")
    cache = context.cache / "embeddings" if context.cache else None
    threads, data = context.placement.threads, context.placement.data
    questions = read_questions(benchmarks)
    progress = context.progress
    findings = check(rows.problem, questions, config, threads, progress, cache, data, judge)
    checked = write_evidence(output, rows, findings, config)
    _write_clean(files, checked.clean, output / "clean.parquet")
    return Counts(
        unit="problems" if files[0].parent == inputs["problems"] else "rows",
        read=checked.read,
        kept=len(checked.clean),
        dropped=checked.dropped,
        info=checked.info,
    )


def _parquet_files(source: Path) -> list[Path]:
    """Input files: problems.parquet (V1.5), a check's clean.parquet, or rows/*.parquet (V1)."""
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


def _write_clean(files: Sequence[Path], clean: set[int], target: Path) -> None:
    """Copy the clean rows with all their columns, batch by batch."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from pcl_reasoner.curate.part_writer import ROW_GROUP_BYTES

    schema = open_parquet(files[0]).schema_arrow
    pending: list[pa.RecordBatch] = []
    with pq.ParquetWriter(target, schema, compression="zstd") as writer:
        for batch in _clean_batches(files, schema, clean):
            pending.append(batch)
            if sum(part.nbytes for part in pending) >= ROW_GROUP_BYTES:
                writer.write_table(pa.Table.from_batches(pending, schema))
                pending = []
        writer.write_table(pa.Table.from_batches(pending, schema))


def _clean_batches(
    files: Sequence[Path], schema: pa.Schema, clean: set[int]
) -> Iterator[pa.RecordBatch]:
    """Yield the clean rows of the files; every file must have the schema of the first file."""
    import pyarrow as pa

    first = 0
    for file in files:
        found = open_parquet(file).schema_arrow
        if not found.equals(schema):
            raise StageError(
                f"contamination: {file.name} has other columns than {files[0].name}: "
                f"{found.names} against {schema.names}."
            )
        for batch in record_batches(file):
            mask = [first + row in clean for row in range(len(batch))]
            yield batch.filter(pa.array(mask, pa.bool_()))
            first += len(batch)
