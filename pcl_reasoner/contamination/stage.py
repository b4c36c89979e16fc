"""The stage ``contamination``: removes problems that are in a benchmark, and shows them.

It writes ``clean.parquet`` and the files described in records.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pcl_reasoner.contamination.config import ContaminationConfig
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.stage import Counts, StageContext

if TYPE_CHECKING:
    import pyarrow as pa


def contamination(
    config: ContaminationConfig,
    inputs: Mapping[str, Path],
    output: Path,
    context: StageContext,
) -> Counts:
    """Run the check; write the rows that are kept, and the evidence on the others."""
    from pcl_reasoner.contamination.check import check
    from pcl_reasoner.contamination.reading import read_questions, read_rows
    from pcl_reasoner.contamination.records import write_evidence
    from pcl_reasoner.stages import inputs_of

    benchmarks = inputs_of(inputs, "benchmark")
    if not (benchmarks or config.against):
        raise StageError(
            "contamination: there is nothing to compare with. Give an input benchmark, or "
            "against: [aime24, aime25]."
        )
    files = _parquet_files(inputs["problems"])
    rows = read_rows(files, inputs["problems"], context.quarantine, "problem")
    threads = context.placement.threads
    cache = context.cache / "embeddings" if context.cache else None
    questions = read_questions(benchmarks)
    data = context.placement.data
    findings = check(rows.problem, questions, config, threads, context.progress, cache, data)
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
    from pcl_reasoner.curate.parts import BATCH_ROWS

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
