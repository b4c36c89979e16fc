"""Shared by the curation stages: parts of a table, read as streams and processed one by one.

A part is one Parquet file of an artifact, e.g. rows/part-00000.parquet. The stage's workspace has a
file of the same name with one row of results per row of the part:

    beside/part-00000.parquet    {"pass_count": 12, "pass_rate": 0.75, "all_correct": false}
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcl_reasoner.core.errors import StageError, is_out_of_memory, out_of_memory
from pcl_reasoner.core.stage import Counts, StageContext
from pcl_reasoner.data_engine.tasks import map_parts, sweep

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa
    import pyarrow.parquet as pq

PROBLEM_FILES = ("clean.parquet", "problems.parquet")
"""An artifact's file with problems: of a stage that filters problems, or of ``unique``."""
DEFAULTS = {"kind": "math", "checks": ""}
"""Values of rows that were written without these columns."""
BATCH_ROWS = 256
"""Maximum number of rows in a batch."""
BATCH_BYTES = 16 << 20
"""Approximate maximum bytes of text in a batch; a response can have half a megabyte."""


def counts_of(read: int, kept: int, dropped: Mapping[str, int], info: dict[str, Any]) -> Counts:
    """Return a stage's Counts in rows; reasons for which no row was dropped are left out."""
    reasons = {reason: count for reason, count in sorted(dropped.items()) if count}
    return Counts(unit="rows", read=read, kept=kept, dropped=reasons, info=info)


@contextmanager
def workspace(
    output: Path, context: StageContext
) -> Iterator[tuple[duckdb.DuckDBPyConnection, Path]]:
    """Yield DuckDB with its memory limit, and a folder that is removed when the stage ends."""
    import duckdb

    # Absolute, because workers on other machines have another working directory.
    folder = output.absolute() / ".workspace"
    folder.mkdir()
    memory, threads = context.placement.duckdb_memory, context.placement.threads
    settings = {"memory_limit": memory, "threads": threads, "temp_directory": str(folder)}
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
        sweep(output)


CHECK_RECIPE = "Check which stage the recipe reads here."


def parts_of(folder: Path, columns: Sequence[str], hint: str = CHECK_RECIPE) -> list[Path]:
    """Return an artifact's Parquet files in source order; check that each has the columns.

    Args:
        folder: The folder with the files.
        columns: Names of the columns.
        hint: What to do if a column is missing.

    Raises:
        StageError: There are no files, or one cannot be read or lacks a column.
    """
    parts = sorted(folder.absolute().glob("*.parquet"))
    if not parts:
        raise StageError(f"{folder}: no *.parquet file. {CHECK_RECIPE}")
    for part in parts:
        names = open_parquet(part).schema_arrow.names
        if missing := [name for name in columns if name not in names]:
            raise StageError(
                f"{part}: no column {', '.join(missing)}; got {', '.join(names)}. {hint}"
            )
    return parts


def problems_file(folder: Path) -> Path:
    """Return an artifact's file with the problems.

    Raises:
        StageError: There is no such file.
    """
    for name in PROBLEM_FILES:
        if (folder / name).is_file():
            return folder / name
    raise StageError(
        f"{folder}: no {' and no '.join(PROBLEM_FILES)}. Let the input problems come from a stage "
        "that writes problems, e.g. contamination or unique."
    )


def with_columns(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows with the columns of a schema.

    Columns that the rows lack are null, but for those of DEFAULTS; so are the nulls of these.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = []
    for field in schema:
        if field.name in rows.schema.names:
            column = rows[field.name].cast(field.type)
        else:
            column = pa.nulls(rows.num_rows, field.type)
        default = DEFAULTS.get(field.name)
        columns.append(column if default is None else pc.fill_null(column, default))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


@contextmanager
def reading(path: Path, kind: str = "Parquet file") -> Iterator[None]:
    """Turn read errors into an error that names the file.

    Raises:
        StageError: The file cannot be read, or memory ran out.
    """
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, MemoryError) as error:
        if is_out_of_memory(error):
            raise out_of_memory(f"reading {path}", error) from error
        raise StageError(
            f"{path}: not a complete {kind} ({error}). Fetch or make it again."
        ) from error


def open_parquet(path: Path) -> pq.ParquetFile:
    """Open a Parquet file as a stream; the checksums of its pages are verified if they exist."""
    import pyarrow.parquet as pq

    with reading(path):
        return pq.ParquetFile(path, buffer_size=1 << 20, page_checksum_verification=True)


def read_parquet(path: Path, columns: list[str] | None = None) -> pa.Table:
    """Read a Parquet file that fits into memory.

    Args:
        path: The file.
        columns: Columns to read; None: all.

    Raises:
        StageError: The file cannot be read, lacks a column, or a text is not UTF-8.
    """
    file = open_parquet(path)
    names = file.schema_arrow.names
    if missing := [name for name in columns or () if name not in names]:
        raise StageError(
            f"{path}: no column {', '.join(missing)}; got {', '.join(names)}. {CHECK_RECIPE}"
        )
    with reading(path):
        table = file.read(columns=columns)
        table.validate(full=True)
    return table


def record_batches(
    path: Path,
    columns: list[str] | None = None,
    row_groups: range | None = None,
    checks_text: bool = True,
) -> Iterator[pa.RecordBatch]:
    """Yield a Parquet file's rows in small batches.

    Args:
        path: The file.
        columns: Columns to read; None: all.
        row_groups: Row groups to read; None: all.
        checks_text: False if the caller refuses rows whose text is not UTF-8 one by one.

    Raises:
        StageError: A page cannot be read, or a text is not UTF-8.
    """
    file = open_parquet(path)
    groups = range(file.num_row_groups) if row_groups is None else row_groups
    at_once = _rows_at_once([file.metadata.row_group(index) for index in groups])
    found = _batches(path, file, at_once, groups, columns)
    return _checked(path, found) if checks_text else found


def fixed_batches(
    path: Path, rows: int, columns: list[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield a Parquet file's rows in batches of a fixed number of rows.

    Args:
        path: The file.
        rows: Maximum number of rows in a batch.
        columns: Columns to read; None: all.

    Raises:
        StageError: A page cannot be read, or a text is not UTF-8.
    """
    file = open_parquet(path)
    return _checked(path, _batches(path, file, rows, range(file.num_row_groups), columns))


def _batches(
    path: Path, file: pq.ParquetFile, rows: int, groups: range, columns: list[str] | None
) -> Iterator[pa.RecordBatch]:
    if not groups:
        return  # pyarrow reports a file without row groups as broken
    batches = file.iter_batches(rows, row_groups=list(groups), columns=columns)
    while True:
        with reading(path):
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


def _checked(path: Path, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        with reading(path):
            batch.validate(full=True)
        yield batch


def _rows_at_once(groups: Sequence[pq.RowGroupMetaData]) -> int:
    """Return the number of rows per batch, from the mean size of a row in the row groups."""
    rows = sum(group.num_rows for group in groups)
    size = sum(group.total_byte_size for group in groups) // max(rows, 1)
    return min(BATCH_ROWS, max(1, BATCH_BYTES // max(size, 1)))


def split_part(
    beside: Path, column: str, true: Path, false: Path | None, part: Path
) -> tuple[int, int]:
    """Copy a part's rows into two folders, by a boolean column of the part's results.

    Args:
        beside: Folder with a file of results per part; the file is named like the part.
        column: Boolean column of the results; their other columns are added to the rows.
        true: Folder for the rows in which the column is true; the new file is named like the part.
        false: Folder for the other rows; None: they are not copied.
        part: The part.

    Returns:
        The number of rows for which the column is true, and for which it is false.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    from pcl_reasoner.curate.part_writer import atomic_part

    found = pq.read_table(beside / part.name, memory_map=False).combine_chunks()
    chosen = found[column].combine_chunks()
    added = found.drop_columns([column])
    schema = pa.schema([*open_parquet(part).schema_arrow, *added.schema])
    first = 0
    with ExitStack() as stack:
        writers = {
            value: stack.enter_context(atomic_part(folder / part.name, schema))
            for value, folder in ((True, true), (False, false))
            if folder is not None
        }
        for batch in record_batches(part):
            rows = added.slice(first, batch.num_rows).combine_chunks()
            columns = [*batch.columns, *(one.combine_chunks() for one in rows.columns)]
            wide = pa.RecordBatch.from_arrays(columns, schema=schema)
            mask = chosen.slice(first, batch.num_rows)
            for value, write in writers.items():
                write(wide.filter(mask if value else pc.invert(mask)))
            first += batch.num_rows
    kept = pc.sum(chosen).as_py() or 0
    return kept, first - kept


def split_parts(
    parts: Sequence[Path],
    beside: Path,
    column: str,
    folders: tuple[Path, Path | None],
    context: StageContext,
) -> tuple[int, int]:
    """Split all parts with `split_part` on the data engine; return the sums of its numbers."""
    task = partial(split_part, beside, column, *folders)
    counts = list(map_parts(task, parts, context.placement.data, context.progress, "parts"))
    return sum(true for true, _ in counts), sum(false for _, false in counts)


def write_beside(table: pa.Table, folder: Path, part: Path) -> None:
    """Write the results for a part's rows to a file that is named like the part."""
    import pyarrow.parquet as pq

    folder.mkdir(exist_ok=True)
    pq.write_table(table, folder / part.name, compression="zstd")
