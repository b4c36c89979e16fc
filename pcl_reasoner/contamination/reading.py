"""Reads training problems and benchmark questions from the file formats in use.

    data        {"problem": "Find x if …"}                                   a column of text
                {"conversations": [{"from": "human", "value": "Find x if …"}, …]}          V1
                {"messages": [{"role": "user", "content": "Find x if …"}, …]}          OpenAI
    benchmark   {"id": "aime-7", "problem": "Find x if …", "answer": "5"}    a line or a row
                {"aime-7": "Find x if …", …}                  V1's aime2425_questions.json

A row that cannot be compared is quarantined and counted by reason. A benchmark question that cannot
be read is an error, because its copies in the training data would stay unnoticed.
"""

import json
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc

from pcl_reasoner.contamination.fields import ANSWER_FIELDS, ID_FIELDS, PROBLEM_FIELDS, first_of
from pcl_reasoner.contamination.fingerprints import Question
from pcl_reasoner.core.artifact import QUARANTINED
from pcl_reasoner.core.errors import InputError, StageError
from pcl_reasoner.core.json_lines import json_lines, parsed
from pcl_reasoner.core.listing import files_below
from pcl_reasoner.curate import problem_id
from pcl_reasoner.curate.parts import open_parquet, reading, record_batches
from pcl_reasoner.formats.records import Reason, has_lone_surrogate

MALFORMED_NO_PROBLEM = "malformed_no_problem"
MALFORMED_ENORMOUS = "malformed_enormous"

FIELDS = (
    *("problem", "question", "conversations", "messages", "prompt", "instruction", "query"),
    *("Problem", "Question"),
)
"""Fields searched for the question, in this order."""
MAX_CHARACTERS = 1_000_000
_ADVICE = "Correct it: a question that is not read would not be found."

Quarantine = Callable[[str, int, str, str | bytes], None]
"""Called with the file's name, the row in the file, the reason and the record."""


@dataclass
class ProblemRows:
    """The rows that can be compared, in source order, as columns.

    Args:
        number: 0-based row number over all files of the input.
        file: The row's file, relative to the input folder.
        problem: The problem's text.
        problem_id: The problem's id.
        refused: Number of a row that cannot be compared -> reason.
    """

    number: list[int] = field(default_factory=list)
    file: list[str] = field(default_factory=list)
    problem: list[str] = field(default_factory=list)
    problem_id: list[str] = field(default_factory=list)
    refused: dict[int, str] = field(default_factory=dict)

    @property
    def read(self) -> int:
        """Number of rows read, refused rows included."""
        return len(self.number) + len(self.refused)

    def origin(self, index: int) -> dict[str, Any]:
        """The columns of one row, with the keys that the evidence uses."""
        return {
            "row": self.number[index],
            "file": self.file[index],
            "problem_id": self.problem_id[index],
            "problem": self.problem[index],
        }


def read_rows(
    files: Sequence[Path], root: Path, quarantine: Quarantine, column: str | None = None
) -> ProblemRows:
    """Read the problems of files.

    Args:
        files: .jsonl or .parquet files, or the .arrow files of a saved data set.
        root: The folder to which the files' names are relative, or the only file itself.
        quarantine: Called with every row that cannot be compared.
        column: Column with the question; None: the first of FIELDS that is present.

    Raises:
        InputError: A Parquet or Arrow file has no such column.
    """
    rows = ProblemRows()
    for file in files:
        name = file.relative_to(root).as_posix() if file != root else file.name
        first = rows.read
        for number, record, reason in _records(file, name, column):
            text = "" if reason else question_of(record, column) or ""
            reason = reason or _refusal(text)
            if reason is not None:
                rows.refused[first + number] = reason
                raw = record if isinstance(record, bytes) else json.dumps(record, default=str)
                quarantine(name, number, reason, raw)
                continue
            rows.number.append(first + number)
            rows.file.append(name)
            rows.problem.append(text)
            rows.problem_id.append(record.get("problem_id") or problem_id(text))
    return rows


def _refusal(text: str) -> str | None:
    if not text.strip():
        return MALFORMED_NO_PROBLEM
    if len(text) > MAX_CHARACTERS:
        return MALFORMED_ENORMOUS
    return Reason.MALFORMED_UTF8 if has_lone_surrogate(text) else None


def question_of(record: Any, column: str | None) -> str | None:
    """The question in a record: a text column or the first user turn; None if there is none."""
    if not isinstance(record, dict):
        return None
    names = [column] if column else [name for name in FIELDS if record.get(name) is not None]
    value = record.get(names[0]) if names else None
    if isinstance(value, list):
        turns = [turn for turn in value if isinstance(turn, dict)]
        asked = (t for t in turns if t.get("from", t.get("role")) in ("human", "user"))
        turn = next(asked, {})
        value = turn.get("value", turn.get("content"))
    return value if isinstance(value, str) else None


Record = tuple[int, Any, str | None]
"""(0-based row in the file; record, or the line's bytes if it is not JSON; reason or None)."""


def _records(file: Path, name: str, column: str | None) -> Iterator[Record]:
    if file.suffix == ".parquet":
        columns = _columns(name, open_parquet(file).schema_arrow, column)
        yield from _batched(record_batches(file, columns, checks_text=False))
    elif file.suffix == ".arrow":
        with reading(file, "Arrow file"), pa.memory_map(str(file)) as source:
            stream = pa.ipc.open_stream(source)
            columns = _columns(name, stream.schema, column)
            yield from _batched(batch.select(columns) for batch in stream)
    else:
        yield from _lines(file)


def _columns(name: str, schema: pa.Schema, column: str | None) -> list[str]:
    """The columns to read: the question's column, and problem_id if the file has it."""
    wanted = [column] if column else list(FIELDS)
    found = next((one for one in wanted if one in schema.names), None)
    if found is None:
        raise InputError(
            f"contamination: {name}: expected a column {' or '.join(wanted)}, got the columns "
            f"{', '.join(schema.names)}. Name the question's column with --field."
        )
    return [found, "problem_id"] if "problem_id" in schema.names else [found]


def _batched(batches: Iterator[pa.RecordBatch]) -> Iterator[Record]:
    """Records of batches; a row whose text is not UTF-8 is refused, like such a line."""
    first = 0
    for batch in batches:
        try:
            found: Iterable[Record] = [
                (first + n, row, None) for n, row in enumerate(batch.to_pylist())
            ]
        except UnicodeDecodeError:
            found = (_one(first + row, batch.slice(row, 1)) for row in range(len(batch)))
        yield from found
        first += len(batch)


def _one(number: int, row: pa.RecordBatch) -> Record:
    try:
        return number, row.to_pylist()[0], None
    except UnicodeDecodeError as error:
        return number, error.object, Reason.MALFORMED_UTF8


def _lines(file: Path) -> Iterator[Record]:
    with file.open("rb") as handle:
        for number, raw in enumerate(handle):
            line = raw.removeprefix(BOM_UTF8) if number == 0 else raw
            if not line.strip():
                yield number, line, MALFORMED_NO_PROBLEM
                continue
            try:
                yield number, json.loads(line.decode("utf-8")), None
            except UnicodeDecodeError:
                yield number, line, Reason.MALFORMED_UTF8
            except (ValueError, RecursionError):
                yield number, line, Reason.MALFORMED_JSON


def data_files(path: Path) -> tuple[list[Path], Path]:
    """The files of a data set, and the path to which their names are relative.

    Args:
        path: A .jsonl or .parquet file, a folder of them, or a folder saved by ``datasets``.

    Raises:
        InputError: There are no such files, or a part of them is missing or cannot be read.
    """
    if path.is_file():
        return [path], path
    for pattern in ("*.arrow", "**/*.parquet", "**/*.jsonl"):
        found = [file for file in files_below(path, (pattern,)) if file.name != QUARANTINED]
        if found:
            return found, path
    raise InputError(
        f"{path}: no .jsonl, .parquet or .arrow file found. Give a file, a folder of them, or a "
        "folder that datasets' save_to_disk wrote."
    )


def read_questions(benchmarks: Mapping[str, Path]) -> list[Question]:
    """Read benchmark questions, all benchmarks in one list.

    Args:
        benchmarks: Name -> a .jsonl, .json or .parquet file, or a folder; in a folder, only the
            .jsonl and .parquet files are read.

    Raises:
        StageError: A record is malformed (it is not skipped, because copies of its question would
            stay unnoticed), or a benchmark has no questions.
    """
    questions: list[Question] = []
    for name, path in benchmarks.items():
        found = [
            _question(name, file, number, record)
            for file in _benchmark_files(path)
            for number, record in _benchmark_records(file)
        ]
        questions += found
        if not found:
            raise StageError(
                f"contamination: benchmark {name} has no question in {path}. Give a .jsonl or "
                ".parquet file with the columns id and problem, or a folder with one."
            )
    return questions


def _question(name: str, file: Path, number: int, record: Mapping[str, Any]) -> Question:
    text = first_of(record, PROBLEM_FIELDS)
    if not isinstance(text, str) or not text.strip():
        raise StageError(
            f"contamination: {file.name}, record {number}: no text in problem or question, got "
            f"the keys {sorted(record)}. Name the question's text problem."
        )
    year = record.get("year")
    answer, identifier = first_of(record, ANSWER_FIELDS), first_of(record, ID_FIELDS)
    return Question(
        name,
        f"{file.stem}:{number}" if identifier is None else str(identifier),
        text,
        year if isinstance(year, int) else None,
        None if answer is None else str(answer),
    )


def _benchmark_files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    files = files_below(path, ("**/*.jsonl", "**/*.parquet"))
    return [file for file in files if file.name != QUARANTINED]


def _benchmark_records(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Records of a benchmark file with their 0-based record or line number."""
    if file.suffix == ".parquet":
        rows = (row for batch in record_batches(file) for row in batch.to_pylist())
        yield from enumerate(rows)
    elif file.suffix == ".json":
        yield from enumerate(_named_questions(file))
    else:
        yield from _benchmark_lines(file)


def _named_questions(file: Path) -> list[dict[str, Any]]:
    """Records of a .json file: V1's object of id -> question or record, or a list of records."""
    value = parsed(file.read_bytes(), str(file), _ADVICE)
    if isinstance(value, list):
        value = {str(item.get("id", number)): item for number, item in enumerate(value)}
    if not isinstance(value, dict):
        raise StageError(
            f"contamination: {file.name}: expected an object of id and question, got "
            f"{type(value).__name__}. Correct the file."
        )
    return [
        {"id": key, **(item if isinstance(item, dict) else {"problem": item})}
        for key, item in value.items()
    ]


def _benchmark_lines(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    # Line by line: a file of LiveCodeBench has up to 1.3 GB.
    for number, record in json_lines(file, _ADVICE):
        if not isinstance(record, dict):
            raise StageError(
                f"contamination: {file.name}, line {number}: expected an object with id and "
                f"problem, got {type(record).__name__}. Correct the line."
            )
        yield number - 1, record
