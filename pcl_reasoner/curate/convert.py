"""Stage ``convert``: third-party files -> rows; malformed and filtered records are quarantined."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from pcl_reasoner.core.artifact import atomic_file
from pcl_reasoner.core.engine import connected, map_parts, sweep
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.stage import Counts, StageConfig, StageContext
from pcl_reasoner.curate import source_files
from pcl_reasoner.curate.filters import Filter, filtered
from pcl_reasoner.curate.parts import counts_of, record_batches
from pcl_reasoner.curate.source_files import Piece

if TYPE_CHECKING:
    from pcl_reasoner.curate.records import Refused, Row

NAMED = 3
"""Maximum number of file names in a warning."""
REFUSED_FOLDER = ".apart"
"""Temporary folder of the pieces' quarantined records."""


class ConvertConfig(StageConfig):
    """Convert third-party files into rows."""

    uses_data_engine: ClassVar[bool] = True

    format: Literal["nemotron", "conversations"]
    """nemotron: Parquet with messages and metadata. conversations: JSONL with turns."""
    max_malformed: float = Field(0.01, ge=0, le=1)
    """Share of the source's rows that may be malformed; above it the stage fails."""
    filters: tuple[Filter, ...] = ()
    """Rows to drop: url (has a URL), image (refers to an image), no_answer (no ground truth)."""
    jsonl: bool = False
    """True: the rows are also written as JSON lines, in a file beside every part."""


def convert(
    config: ConvertConfig, inputs: Mapping[str, Path], output: Path, context: StageContext
) -> Counts:
    """Convert source files into rows; quarantine malformed and filtered records by reason.

    Args:
        config: The source's format and the filters.
        inputs: ``source``: a file, or a folder whose files are read in the order of their paths.
        output: Gets rows/part-NNNNN.parquet, one per piece of a source file.
        context: Gets every quarantined record; has the data engine.

    Raises:
        StageError: There are no files or no rows, or a file cannot be read or lacks columns.
    """
    # Absolute, because workers on other machines have another working directory.
    source, output = inputs["source"].absolute(), output.absolute()
    engine = context.placement.data
    files = source_files.files_of(source, config.format)
    refused_folder = output / REFUSED_FOLDER
    refused_folder.mkdir()
    (output / "rows").mkdir()
    read: Counter[str] = Counter({name: 0 for _, name in files})
    refused: Counter[str] = Counter()
    with connected(engine):
        pieces = source_files.pieces_of(files, config.format, engine, context.progress)
        task = partial(convert_piece, config, output)
        results = map_parts(task, pieces, engine, context.progress, "pieces")
        for piece, (records, reasons) in zip(pieces, results, strict=True):
            read[piece.name] += records
            refused += reasons
    _merge(refused_folder, context.quarantined)
    sweep(output)
    if not read.total():
        raise StageError(f"{source}: its {len(files)} files have no rows. Check the source.")
    if empty := [name for name, rows in read.items() if not rows]:
        context.warn(f"{len(empty)} of {len(files)} source files have no rows: {_named(empty)}")
    if unread := source_files.unread_files(source, files):
        wanted = " or ".join(source_files.PATTERNS[config.format])
        context.warn(f"{len(unread)} files in the source are not {wanted}: {_named(unread)}")
    kept = read.total() - refused.total()
    return counts_of(read.total(), kept, refused, {"files": len(files)})


def _named(files: Sequence[str]) -> str:
    return ", ".join(files[:NAMED]) + (", …" if len(files) > NAMED else "")


def _merge(refused_folder: Path, quarantined: Path) -> None:
    """Append the pieces' quarantined records to one file, in source order."""
    with quarantined.open("ab") as target:
        for path in sorted(refused_folder.glob("*.jsonl")):
            with path.open("rb") as handle:
                shutil.copyfileobj(handle, target, 1 << 20)
    shutil.rmtree(refused_folder)


def convert_piece(config: ConvertConfig, output: Path, piece: Piece) -> tuple[int, Counter[str]]:
    """Convert a piece of a source file: write its rows to one part, and its quarantined records.

    Args:
        config: The source's format and the filters.
        output: The stage's folder.
        piece: The piece.

    Returns:
        The number of records read; and the number that did not become a row, by reason.
    """
    from pcl_reasoner.core.schemas import ROWS
    from pcl_reasoner.curate import records
    from pcl_reasoner.curate.part_writer import atomic_part

    read = 0
    refused: Counter[str] = Counter()
    part = output / "rows" / f"part-{piece.index:05d}.parquet"
    with (
        atomic_part(part, ROWS, config.jsonl) as write,
        atomic_file(output / REFUSED_FOLDER / f"{piece.index:05d}.jsonl") as quarantined,
    ):
        quarantined.touch()
        context = StageContext("convert", quarantined)
        for batch in _records(piece, config.format):
            first = piece.first + read
            read += len(batch)
            rows = _rows(batch, first, piece.name, config, context, refused)
            write(records.to_batch(piece.name, rows))
    return read, refused


def _rows(
    batch: list[Row | Refused],
    first: int,
    file: str,
    config: ConvertConfig,
    context: StageContext,
    refused: Counter[str],
) -> list[tuple[int, Row]]:
    """Return the rows of a batch, each with its number in the source file.

    The batch is emptied. Refused records are quarantined and counted.
    """
    from pcl_reasoner.curate import records

    rows: list[tuple[int, Row]] = []
    for number, record in enumerate(batch, first):
        record = _after_filters(record, config.filters)
        if isinstance(record, records.Row):
            rows.append((number, record))
        else:
            context.quarantine(file, number, record.reason, record.raw)
            refused[record.reason] += 1
    # Frees texts of up to 64 MiB, which are copied into Arrow's memory and compressed next.
    batch.clear()
    return rows


def _after_filters(record: Row | Refused, filters: Sequence[Filter]) -> Row | Refused:
    """Return the record, or its refusal if a filter drops it."""
    from pcl_reasoner.curate import records

    if isinstance(record, records.Refused):
        return record
    reason = filtered(record.problem, record.ground_truth, filters)
    return record if reason is None else records.Refused(reason, record.problem)


def _records(piece: Piece, format: str) -> Iterator[list[Row | Refused]]:
    """Yield a piece's records in batches."""
    from pcl_reasoner.curate import conversations, nemotron, records

    if format == "nemotron":
        stop = piece.start if piece.stop is None else piece.stop
        for batch in record_batches(piece.path, row_groups=range(piece.start, stop)):
            yield nemotron.read_batch(batch)
        return
    for lines in source_files.read_lines(piece):
        found: list[Row | Refused] = []
        lines.reverse()
        while lines:
            # A line is freed as soon as it is read: it may have 64 MiB.
            line, is_complete = lines.pop()
            if is_complete:
                found.append(conversations.read_line(line))
            else:
                found.append(records.Refused(records.Reason.MALFORMED_TOO_LONG, line))
            del line
        yield found
