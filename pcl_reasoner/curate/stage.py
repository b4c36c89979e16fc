"""The curation stages: convert, difficulty, lengths and unique.

Records go by as a stream: Arrow batches of a few hundred rows carry the long columns in source
order, and DuckDB, which has a memory limit and spills beyond it, sees only the short ones. What
DuckDB works out for a part comes back in the part's order and is put beside its batches, so no
stage ever sorts or holds the texts.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from pcl_reasoner.errors import StageError
from pcl_reasoner.stage import Counts, StageConfig, StageContext

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa
    import pyarrow.parquet as pq
    from tokenizers import Tokenizer

    from pcl_reasoner.curate.records import Refused, Row

BATCH_ROWS = 256
"""Rows in memory at once; a response can have half a megabyte."""


class ConvertConfig(StageConfig):
    """Read other people's files."""

    format: Literal["nemotron", "conversations"]
    """nemotron: Parquet with messages and metadata. conversations: JSONL with turns."""
    max_malformed: float = Field(0.01, ge=0, le=1)
    """Share of the source's rows that may be malformed; above it the stage fails."""


class DifficultyConfig(StageConfig):
    """Set aside the problems that were solved every time."""

    divisor: int = Field(16, gt=0)
    """Samples a problem and round; a row count divisible by it means all were right."""


class LengthsConfig(StageConfig):
    """Keep the problems with long responses."""

    min_mean_tokens: int = Field(ge=0)
    """Mean response length of a problem, in tokens, from which it is kept."""
    inclusive: bool = True
    """True: a mean equal to min_mean_tokens is kept (>=); False: it is not (>)."""


class UniqueConfig(StageConfig):
    """Keep one row a problem; there is nothing to set."""


def convert(
    config: ConvertConfig, inputs: Mapping[str, Path], output: Path, context: StageContext
) -> Counts:
    """Make rows of source files, and keep apart what is malformed, by reason.

    Args:
        config: The source's format.
        inputs: ``source``: a file, or a folder whose files are read in the order of their paths.
        output: Gets rows/part-NNNNN.parquet, one a source file.
        context: Gets every malformed record.

    Raises:
        StageError: No files, no rows, a file that cannot be read or lacks columns.
    """
    from pcl_reasoner.curate import records
    from pcl_reasoner.curate.part_writer import PartWriter

    source = inputs["source"]
    files = _source_files(source, config.format)
    (output / "rows").mkdir()
    read = 0
    refused: Counter[str] = Counter()
    for index, path in enumerate(files):
        name = path.relative_to(source).as_posix() if source.is_dir() else path.name
        part = output / "rows" / f"part-{index:05d}.parquet"
        with PartWriter(part, records.ROWS_SCHEMA) as writer:
            for first, batch in _source_records(path, config.format):
                rows: list[tuple[int, Row]] = []
                for number, record in enumerate(batch, first):
                    if isinstance(record, records.Refused):
                        context.keep_apart(name, number, record.reason, record.raw)
                        refused[record.reason] += 1
                    else:
                        rows.append((number, record))
                writer.write(records.to_batch(name, rows))
                read += len(batch)
                context.progress.update(index, len(files), "files", f"{read} rows")
    if not read:
        raise StageError(f"{source}: {len(files)} files with no row in them. Check the source.")
    dropped = dict(sorted(refused.items()))
    return _counts(read, read - refused.total(), dropped, {"files": len(files)})


def _source_files(source: Path, format: str) -> list[Path]:
    """The source's files in source order, Parquet's columns checked, all errors at once."""
    from pcl_reasoner.curate import nemotron

    pattern = "*.parquet" if format == "nemotron" else "*.jsonl"
    files = [source] if source.is_file() else [p for p in source.rglob(pattern) if not p.is_dir()]
    if not files:
        found = "no such file or folder" if not source.exists() else f"no {pattern} file in it"
        raise StageError(f"{source}: {found}, expected {format} data. Check the source's path.")
    files.sort(key=lambda path: path.relative_to(source).as_posix())
    if format == "nemotron":
        wrong = [(path, nemotron.wrong_columns(_open_parquet(path).schema_arrow)) for path in files]
        if errors := [f"{path}: {what}." for path, what in wrong if what]:
            raise StageError("\n".join([*errors, "Choose other files or another format."]))
    return files


def _source_records(path: Path, format: str) -> Iterator[tuple[int, list[Row | Refused]]]:
    """A source file's records in batches, with the first one's 0-based number."""
    from pcl_reasoner.curate import conversations, nemotron

    first = 0
    if format == "nemotron":
        for batch in _record_batches(path):
            yield first, nemotron.read_batch(batch)
            first += batch.num_rows
        return
    with path.open("rb") as handle:
        while lines := list(islice(handle, BATCH_ROWS)):
            yield first, [conversations.read_line(line) for line in lines]
            first += len(lines)


def difficulty(
    config: DifficultyConfig, inputs: Mapping[str, Path], output: Path, context: StageContext
) -> Counts:
    """Split the rows by whether their problem was solved every time it was sampled.

    The source holds only right responses of a fixed number of samples, so a problem's rows are
    its passes: 12 of 16 give a pass rate of 0.75, and 20 rows are 20 of two rounds' 32.

    Args:
        config: How many samples a round had.
        inputs: ``rows``: convert's folder.
        output: Gets partial/*.parquet and all_right/*.parquet, pass_count and pass_rate added.
        context: Memory and threads.

    Raises:
        StageError: A part cannot be read or lacks columns.

    Source: upstream's difficulty split; a count divisible by 16 is set aside.
    """
    import pyarrow.compute as pc

    from pcl_reasoner.curate import queries

    parts = _parts(inputs["rows"] / "rows", ["problem_id"])
    read = kept = 0
    with _workspace(output, context) as (connection, _):
        queries.count_passes(connection, parts)
        info = queries.pass_figures(connection, config.divisor)
        for index, part in enumerate(parts):
            added = queries.pass_columns(connection, part, config.divisor)
            all_right = added["all_right"].combine_chunks()
            added = added.select(["pass_count", "pass_rate"])
            kept += _write_chosen(part, added, pc.invert(all_right), output / "partial")
            _write_chosen(part, added, all_right, output / "all_right")
            read += added.num_rows
            context.progress.update(index + 1, len(parts), "parts")
    if not kept:
        context.warn("every problem was solved every time; is difficulty.divisor right?")
    return _counts(read, kept, {"all_right": read - kept}, info)


def lengths(
    config: LengthsConfig, inputs: Mapping[str, Path], output: Path, context: StageContext
) -> Counts:
    """Keep the problems whose responses are long on average.

    Args:
        config: The mean length, in tokens, from which a problem is kept.
        inputs: ``rows``: difficulty's folder; ``tokenizer``: a model folder.
        output: Gets rows/*.parquet, cot_tokens and mean_cot_tokens added, and histogram.json.
        context: Memory and threads.

    Raises:
        StageError: No tokenizer, or a part cannot be read or lacks columns.

    Source: upstream's mean length filter, >= 32 000 in its code and "over 32K" in its README.
    """
    from pcl_reasoner.curate import queries
    from pcl_reasoner.runner import write_json

    parts = _parts(inputs["rows"] / "partial", ["problem_id", "cot"])
    tokenizer = _load_tokenizer(inputs["tokenizer"])
    limit = (config.min_mean_tokens, config.inclusive)
    kept = 0
    with _workspace(output, context) as (connection, folder):
        read = _measure(parts, tokenizer, folder, context)
        measured = [folder / part.name for part in parts]
        queries.mean_lengths(connection, measured)
        for part, path in zip(parts, measured, strict=True):
            added = queries.length_columns(connection, path, *limit)
            long = added["long"].combine_chunks()
            added = added.select(["cot_tokens", "mean_cot_tokens"])
            kept += _write_chosen(part, added, long, output / "rows")
        histogram = queries.length_histogram(connection, measured)
        info = queries.length_figures(connection, *limit)
    threshold = {"threshold": config.min_mean_tokens, "inclusive": config.inclusive}
    write_json(output / "histogram.json", {**threshold, **histogram})
    if not kept:
        context.warn("no problem is that long; is lengths.min_mean_tokens right?")
    return _counts(read, kept, {"short_mean_cot": read - kept}, info)


def _load_tokenizer(folder: Path) -> Tokenizer:
    from tokenizers import Tokenizer

    path = folder / "tokenizer.json"
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises the bare Exception
        raise StageError(f"{path}: {error}. Give a Hugging Face model folder.") from error
    # A cut or padded text would be counted with the cut's length, not with its own.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _measure(
    parts: Sequence[Path], tokenizer: Tokenizer, folder: Path, context: StageContext
) -> int:
    """Write problem_id and cot_tokens of every part into ``folder``; give the rows read."""
    import pyarrow as pa

    from pcl_reasoner.curate.part_writer import PartWriter
    from pcl_reasoner.curate.token_lengths import count_tokens

    schema = pa.schema([("problem_id", pa.string()), ("cot_tokens", pa.int32())])
    total = sum(_open_parquet(part).metadata.num_rows for part in parts)
    read = 0
    for part in parts:
        with PartWriter(folder / part.name, schema) as writer:
            for batch in _record_batches(part, ["problem_id", "cot"]):
                counted = count_tokens(tokenizer, batch.column("cot").to_pylist())
                columns = [batch.column("problem_id"), pa.array(counted, pa.int32())]
                writer.write(pa.RecordBatch.from_arrays(columns, schema=schema))
                read += batch.num_rows
                context.progress.update(read, total, "rows", "counting tokens")
    return read


def unique(
    config: UniqueConfig, inputs: Mapping[str, Path], output: Path, context: StageContext
) -> Counts:
    """Keep, of every problem, the first row that has a ground truth.

    Args:
        config: Empty.
        inputs: ``rows``: lengths' folder.
        output: Gets problems.parquet.
        context: Memory and threads.

    Raises:
        StageError: A part cannot be read or lacks columns.
    """
    from pcl_reasoner.curate import queries
    from pcl_reasoner.curate.part_writer import PartWriter
    from pcl_reasoner.curate.records import PROBLEMS_SCHEMA

    needed = [*PROBLEMS_SCHEMA.names[:-1], "row_id"]
    parts = _parts(inputs["rows"] / "rows", needed)
    with _workspace(output, context) as (connection, _):
        queries.find_answered(connection, parts)
        found = queries.unique_figures(connection, parts)
        with PartWriter(output / "problems.parquet", PROBLEMS_SCHEMA) as writer:
            for batch in queries.first_rows(connection, parts):
                writer.write(batch.cast(PROBLEMS_SCHEMA))
    read, answered, problems = found["rows"], found["answered"], found["problems"]
    if not problems:
        context.warn("no row has a ground truth; does the source have answers?")
    dropped = {"blank_ground_truth": read - answered, "repeated_problem": answered - problems}
    return _counts(read, problems, dropped, {"conflicting_ground_truths": found["conflicting"]})


def _counts(read: int, kept: int, dropped: dict[str, int], info: dict[str, Any]) -> Counts:
    reasons = {reason: count for reason, count in dropped.items() if count}
    return Counts(unit="rows", read=read, kept=kept, dropped=reasons, info=info)


@contextmanager
def _workspace(
    output: Path, context: StageContext
) -> Iterator[tuple[duckdb.DuckDBPyConnection, Path]]:
    """DuckDB within its memory limit, and a folder that is gone when the stage has ended."""
    import duckdb

    folder = output / ".workspace"
    folder.mkdir()
    memory = context.placement.get("duckdb_memory", "1GB")
    settings = {
        "memory_limit": memory,
        "threads": context.placement.get("threads", 2),
        "temp_directory": str(folder),
    }
    try:
        with duckdb.connect(":memory:", config=settings) as connection:
            yield connection, folder
    except duckdb.Error as error:
        raise StageError(
            f"{output}: DuckDB with duckdb_memory {memory}: {error}. Give it more memory in the "
            "launch file's placement, or free space on this disk, to which it spills."
        ) from error
    finally:
        shutil.rmtree(folder)


def _parts(folder: Path, columns: Sequence[str]) -> list[Path]:
    """An artifact's Parquet files in source order, all with the columns that are needed."""
    parts = sorted(folder.glob("*.parquet"))
    if not parts:
        raise StageError(f"{folder}: no *.parquet in it. Which stage does the recipe read here?")
    for part in parts:
        names = _open_parquet(part).schema_arrow.names
        if missing := [name for name in columns if name not in names]:
            raise StageError(
                f"{part}: no column {', '.join(missing)}; got {', '.join(names)}. "
                "Which stage does the recipe read here?"
            )
    return parts


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise StageError(
            f"{path}: not a whole Parquet file ({error}). Fetch or make it again."
        ) from error


def _open_parquet(path: Path) -> pq.ParquetFile:
    import pyarrow.parquet as pq

    with _reading(path):
        return pq.ParquetFile(path, buffer_size=1 << 20)


def _record_batches(path: Path, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
    file = _open_parquet(path)
    if not file.num_row_groups:
        return  # pyarrow takes a file without row groups for a broken one
    batches = file.iter_batches(BATCH_ROWS, columns=columns)
    while True:
        with _reading(path):
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


def _write_chosen(part: Path, added: pa.Table, chosen: pa.BooleanArray, folder: Path) -> int:
    """Copy the chosen rows of a part, with columns added; give how many.

    Args:
        part: The part.
        added: One row a row of the part, in its order.
        chosen: The same, True for the rows to copy.
        folder: Gets a file of the part's name.
    """
    import pyarrow as pa

    from pcl_reasoner.curate.part_writer import PartWriter

    folder.mkdir(exist_ok=True)
    added = added.combine_chunks()
    schema = pa.schema([*_open_parquet(part).schema_arrow, *added.schema])
    first = kept = 0
    with PartWriter(folder / part.name, schema) as writer:
        for batch in _record_batches(part):
            beside = added.slice(first, batch.num_rows)
            columns = [*batch.columns, *(column.combine_chunks() for column in beside.columns)]
            wide = pa.RecordBatch.from_arrays(columns, schema=schema)
            wide = wide.filter(chosen.slice(first, batch.num_rows))
            writer.write(wide)
            first += batch.num_rows
            kept += wide.num_rows
    return kept
