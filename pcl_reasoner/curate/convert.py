"""Stage ``convert``: third-party files -> rows; malformed and filtered records are quarantined."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import ClassVar

from pydantic import Field, model_validator

from pcl_reasoner.core.artifact import atomic_file
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.kinds import Kind
from pcl_reasoner.core.stage import RAW_LIMIT_BYTES, Counts, StageConfig, StageContext
from pcl_reasoner.curate import source_files
from pcl_reasoner.curate.filters import MAX_NON_LETTERS, Filter, filtered
from pcl_reasoner.curate.parts import counts_of, record_batches
from pcl_reasoner.curate.source_files import Piece
from pcl_reasoner.data_engine.tasks import connected, map_parts, sweep
from pcl_reasoner.formats.reading import FORMATS, FormatName, read_batch, read_line
from pcl_reasoner.formats.records import Dates, ReadLimits, Reason, Refused, Row

NAMED = 3
"""Maximum number of file names in a warning."""
REFUSED_FOLDER = ".apart"
"""Temporary folder of the pieces' quarantined records."""


class ConvertConfig(StageConfig):
    """Convert third-party files into rows."""

    uses_data_engine: ClassVar[bool] = True

    format: FormatName
    """The published data set's form: nemotron and conversations have responses; am_rl, verifiable,
    deepcoder, taco, kodcode, livecodebench, codeforces and acecode have tests; ifeval has
    instructions; chat has conversations."""
    kind: Kind | None = None
    """Kind of all problems: math, code, instruction, chat or science. Without it, what the format
    says, or math."""
    max_tests: int = Field(10, gt=0)
    """Largest number of tests per problem: the first ones in the source's order, public tests
    before hidden ones."""
    contest_since: date | None = None
    """Only livecodebench: problems of earlier contests are dropped, e.g. before 2024-10-01."""
    contest_before: date | None = None
    """Only livecodebench: problems of contests on this day or later are dropped."""
    max_malformed: float = Field(0.01, ge=0, le=1)
    """Share of the source's rows that may be malformed; above it the stage fails."""
    filters: tuple[Filter, ...] = ()
    """Rows to drop: url (has a URL), image (refers to an image), table (has a table), non_letters
    (has too large a share of them), no_answer (neither a ground truth nor checks)."""
    max_non_letters: float = Field(MAX_NON_LETTERS, ge=0, le=1)
    """Largest share of characters other than letters, digits, marks, blanks, ASCII punctuation and
    mathematical symbols. Only the filter non_letters uses it."""
    jsonl: bool = False
    """True: the rows are also written as JSON lines, in a file beside every part."""

    def limits(self) -> ReadLimits:
        """Return what is read of the source."""
        contests = Dates(self.contest_since, self.contest_before)
        return ReadLimits(self.max_tests, contests=contests)

    @model_validator(mode="after")
    def _contests_have_dates(self) -> ConvertConfig:
        if self.limits().contests.are_limited and self.format != "livecodebench":
            raise ValueError(
                "contest_since and contest_before need format: livecodebench; "
                f"{self.format} has no dates of contests"
            )
        return self


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
        wanted = " or ".join(FORMATS[config.format].patterns)
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
    from pcl_reasoner.curate.batches import to_batch
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
        for batch in _records(piece, config.format, config.limits()):
            first = piece.first + read
            read += len(batch)
            rows = _rows(batch, first, piece.name, config, context, refused)
            write(to_batch(piece.name, rows))
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
    rows: list[tuple[int, Row]] = []
    for number, record in enumerate(batch, first):
        record = _after_filters(record, config)
        if isinstance(record, Row):
            rows.append((number, record))
        else:
            context.quarantine(file, number, record.reason, _shown(record))
            refused[record.reason] += 1
    # Frees texts of up to 64 MiB, which are copied into Arrow's memory and compressed next.
    batch.clear()
    return rows


def _after_filters(record: Row | Refused, config: ConvertConfig) -> Row | Refused:
    """Return the record with its kind, or its refusal if a filter drops it."""
    if isinstance(record, Refused):
        return record
    row = record if config.kind is None else replace(record, kind=config.kind)
    reason = filtered(row.problem, row.checked_by, config.filters, config.max_non_letters)
    return row if reason is None else Refused(reason, row.problem)


def _shown(record: Refused) -> str | bytes:
    """Return a refused record for the quarantine file, after a line that says what is wrong."""
    if not record.detail:
        return record.raw
    raw = record.raw
    text = raw if isinstance(raw, str) else raw[:RAW_LIMIT_BYTES].decode("utf-8", "replace")
    return f"{record.detail}\n{text}"


def _records(piece: Piece, format: str, limits: ReadLimits) -> Iterator[list[Row | Refused]]:
    """Yield a piece's records in batches."""
    if source_files.is_parquet(piece.path, format):
        stop = piece.start if piece.stop is None else piece.stop
        groups = range(piece.start, stop)
        for batch in record_batches(piece.path, row_groups=groups, checks_text=False):
            yield read_batch(format, batch, limits)
        return
    for lines in source_files.read_lines(piece):
        found: list[Row | Refused] = []
        lines.reverse()
        while lines:
            # A line is freed as soon as it is read: it may have 64 MiB.
            line, is_complete = lines.pop()
            if is_complete:
                found.append(read_line(format, line, limits))
            else:
                found.append(Refused(Reason.MALFORMED_TOO_LONG, line))
            del line
        yield found
