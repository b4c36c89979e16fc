"""The files of a source, and the pieces of files that are converted one by one.

A sample piece, the second of a large math.jsonl: the lines that start in bytes 268435456 to
536870911. The first of these lines has the 0-based number 5210:

    Piece(index=1, path=…/math.jsonl, name="math.jsonl", first=5210, start=1 << 28, stop=1 << 29)

Pieces depend only on the files, never on the number of workers. ``convert`` writes one part per
piece, so its parts do not depend on the number of workers either.
"""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice, pairwise
from pathlib import Path
from typing import BinaryIO

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schema import DataEngine
from pcl_reasoner.core.stage import RAW_LIMIT_BYTES, Progress
from pcl_reasoner.curate.parts import BATCH_BYTES, BATCH_ROWS, open_parquet, reading
from pcl_reasoner.data_engine.tasks import map_parts
from pcl_reasoner.formats.reading import FORMATS, LINES, PARQUET, wrong_columns

PIECE_BYTES = 1 << 28
"""Approximate size of a piece: uncompressed bytes of Parquet, or bytes of a JSONL file."""
LINE_BYTES = 1 << 26
"""Maximum bytes of a line. A longer line is no record, and is quarantined without parsing."""

COMPRESSIONS = {".zst": "zstd", ".gz": "gzip"}


@dataclass(frozen=True)
class Piece:
    """Consecutive rows of a source file.

    Args:
        index: Index of the piece in the source, from 0; the piece's part has this number.
        path: The file.
        name: Path of the file, relative to the source.
        first: 0-based number, within the file, of the piece's first row or line.
        start: First row group. For JSONL, the first byte at which a line of the piece may start.
        stop: Row group or byte after the piece's last one; None: the end of the file.
    """

    index: int
    path: Path
    name: str
    first: int
    start: int
    stop: int | None


def files_of(source: Path, format: str) -> list[tuple[Path, str]]:
    """Return the source's files with their names, in source order.

    Raises:
        StageError: There are no files, or Parquet files have wrong columns; the message names all
            of these files.
    """
    patterns = FORMATS[format].patterns
    files = {path for pattern in patterns for path in source.rglob(pattern) if path.is_file()}
    if source.is_file():
        files = {source}
    if not files:
        wanted = " or ".join(patterns)
        found = f"no {wanted} file in it" if source.exists() else "no such file or folder"
        raise StageError(f"{source}: {found}, expected {format} data. Check the source's path.")
    root = source.parent if source.is_file() else source
    named = [(path, path.relative_to(root).as_posix()) for path in files]
    ordered = sorted(named, key=lambda item: item[1])
    _check_columns([path for path, _ in ordered if is_parquet(path, format)], format)
    return ordered


def is_parquet(path: Path, format: str) -> bool:
    """True for a Parquet file, False for JSONL; a format with only one of both decides."""
    patterns = FORMATS[format].patterns
    if patterns in (PARQUET, LINES):
        return patterns == PARQUET
    return path.suffix == ".parquet"


def _check_columns(paths: Sequence[Path], format: str) -> None:
    """Reject Parquet files with wrong columns, all in one error."""
    wrong = [(path, wrong_columns(open_parquet(path).schema_arrow, format)) for path in paths]
    if errors := [f"{path}: {error}." for path, error in wrong if error]:
        raise StageError("\n".join([*errors, "Choose other files or another format."]))


def unread_files(source: Path, files: Sequence[tuple[Path, str]]) -> list[str]:
    """Return the names of files in the source that are not read.

    Hidden files, licences (LICENSE*) and descriptions (*.md) are left out.
    """
    if source.is_file():
        return []
    read = {name for _, name in files}
    names = {path.relative_to(source) for path in source.rglob("*") if path.is_file()}
    return sorted(
        name.as_posix()
        for name in names
        if name.as_posix() not in read
        and not any(part.startswith(".") for part in name.parts)
        and not name.name.upper().startswith("LICENSE")
        and name.suffix.lower() != ".md"
    )


def pieces_of(
    files: Sequence[tuple[Path, str]], format: str, engine: DataEngine, progress: Progress
) -> list[Piece]:
    """Cut the files of a source into pieces; to cut a JSONL file, count its lines.

    Args:
        files: Path and name of each file, in source order.
        format: One of the formats of convert.
        engine: The data engine, which counts the lines.
        progress: Receives the progress of the counting.
    """
    tables = {path: row_group_spans(path) for path, _ in files if is_parquet(path, format)}
    lines = [path for path, _ in files if path not in tables]
    spans = {**tables, **(line_spans(lines, engine, progress) if lines else {})}
    flat = ((path, name, span) for path, name in files for span in spans[path])
    return [Piece(index, path, name, *span) for index, (path, name, span) in enumerate(flat)]


def row_group_spans(path: Path) -> list[tuple[int, int, int | None]]:
    """Return (first row, first row group, row group after the last) per piece of a Parquet file."""
    metadata = open_parquet(path).metadata
    spans: list[tuple[int, int, int | None]] = []
    first = start = rows = size = 0
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        if index > start and size + group.total_byte_size > PIECE_BYTES:
            spans.append((first, start, index))
            first, start, size = rows, index, 0
        rows += group.num_rows
        size += group.total_byte_size
    return [*spans, (first, start, metadata.num_row_groups)]


def line_spans(
    paths: Sequence[Path], engine: DataEngine, progress: Progress
) -> dict[Path, list[tuple[int, int, int | None]]]:
    """Return (first line, first byte, byte after the last) per piece of each JSONL file.

    A line belongs to the piece that contains its first byte. A compressed file is one piece,
    because it can only be read from its start.
    """
    edges = {path: _edges(path) for path in paths}
    # A line starts after a newline, so a piece's newlines are counted from one byte before it.
    blocks = [
        (path, max(start - 1, 0), stop - 1)
        for path, starts in edges.items()
        for start, stop in pairwise(starts)
    ]
    found = iter(list(map_parts(count_lines, blocks, engine, progress, "blocks")))
    spans: dict[Path, list[tuple[int, int, int | None]]] = {}
    for path, starts in edges.items():
        newlines = accumulate(islice(found, len(starts) - 1))
        # No newline precedes the first line.
        firsts = [0, *(1 + total for total in newlines)]
        spans[path] = list(zip(firsts, starts, [*starts[1:], None], strict=True))
    return spans


def _edges(path: Path) -> list[int]:
    """Return the byte offsets at which the pieces of a JSONL file start."""
    size = 0 if path.suffix in COMPRESSIONS else path.stat().st_size
    return list(range(0, max(size, 1), PIECE_BYTES))


def count_lines(block: tuple[Path, int, int]) -> int:
    """Count the newlines in a block: (file, first byte, byte after the last)."""
    path, start, stop = block
    found = 0
    with path.open("rb") as handle:
        handle.seek(start)
        while start < stop and (data := handle.read(min(1 << 20, stop - start))):
            found += data.count(b"\n")
            start += len(data)
    return found


def read_lines(piece: Piece) -> Iterator[list[tuple[bytes, bool]]]:
    """Yield a JSONL piece's lines in small batches.

    Each line comes with True, or with False if it is too long and was therefore cut.

    Raises:
        StageError: A compressed file is incomplete.
    """
    with open_lines(piece.path) as handle, reading(piece.path, "compressed file"):
        position = _seek_line(handle, piece.start)
        batch: list[tuple[bytes, bool]] = []
        size = 0
        while piece.stop is None or position < piece.stop:
            line = handle.readline(LINE_BYTES)
            if not line:
                break
            is_complete = len(line) < LINE_BYTES or line.endswith(b"\n")
            position += len(line) + (0 if is_complete else _skip_line(handle))
            batch.append((line if is_complete else line[:RAW_LIMIT_BYTES], is_complete))
            size += len(line)
            del line  # only the batch refers to it now
            if len(batch) == BATCH_ROWS or size >= BATCH_BYTES:
                yield batch
                batch, size = [], 0
        yield batch


def _seek_line(handle: BinaryIO, start: int) -> int:
    """Go to the first line that starts at this byte or later, and return the line's byte offset."""
    if not start:
        return 0
    handle.seek(start - 1)
    return start - 1 + _skip_line(handle)


def _skip_line(handle: BinaryIO) -> int:
    """Read to the end of the line, and return the number of bytes read."""
    skipped = 0
    while data := handle.readline(1 << 20):
        skipped += len(data)
        if data.endswith(b"\n"):
            break
    return skipped


def open_lines(path: Path) -> BinaryIO:
    """Open a JSONL file; compressed bytes are decompressed while they are read."""
    kind = COMPRESSIONS.get(path.suffix)
    if kind is None:
        return path.open("rb")
    import pyarrow as pa

    return io.BufferedReader(pa.input_stream(str(path), compression=kind), 1 << 20)
