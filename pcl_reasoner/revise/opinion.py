"""The third model's answers to disputed problems: how a reply is read, and recorded replies.

A recorded opinion is a line of a JSONL file or a row of a Parquet file. It has the answer itself or
the complete response; disputed.jsonl with its ``answer`` filled in has this form:

    {"problem_id": "9f0c…", "answer": "8"}
    {"problem_id": "9f0c…", "response": "<think>…</think>It is \\\\boxed{8}.",
     "finish_reason": "stop"}

The artifact of a stage ``sample`` with another model has such rows, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcl_reasoner.core.artifact import QUARANTINED
from pcl_reasoner.core.errors import InputError
from pcl_reasoner.core.json_lines import json_lines
from pcl_reasoner.formats.records import encodable
from pcl_reasoner.inference.response_log import FAILED
from pcl_reasoner.verifiers.answers import last_boxed, without_thinking

TEXT_CHARACTERS = 2000
"""Characters kept at the end of a reply, where the answer is."""


@dataclass(frozen=True)
class Opinion:
    """The third model's opinion on one problem.

    Args:
        answer: Its answer; None if no reply has a readable one.
        text: The end of its last reply; empty if only the answer was recorded.
        asked: How often the model was asked; 0 for a recorded opinion.
    """

    answer: str | None
    text: str = ""
    asked: int = 0


def read_reply(reply: str, finish_reason: str) -> str | None:
    """Return the answer in a reply's last box, after its think part; None if there is none.

    A server may remove the think part, so a reply without one is read completely. But if such a
    reply was cut off, it may be a think part only, and has no answer.

    Args:
        reply: The complete reply.
        finish_reason: Why sampling ended: ``stop``, ``length``, ``error`` or ``timeout``.
    """
    answered = without_thinking(reply)
    is_cut_off = finish_reason == "length" and answered is reply
    if answered is None or is_cut_off or finish_reason in FAILED:
        return None
    return last_boxed(answered)


def read_opinions(path: Path, wanted: Collection[str]) -> dict[str, Opinion]:
    """Read recorded opinions: problem_id -> opinion.

    If a problem has several, the first one with a readable answer counts, by sample_index and then
    by place in the file.

    Args:
        path: A JSONL or Parquet file, a folder with one such file, or a ``sample`` artifact.
        wanted: The problem_ids; opinions on other problems are ignored.

    Raises:
        InputError: A line or row is malformed, or there is no such file.
    """
    read = [
        (_index(record, where), name, opinion_of(record, where))
        for file in _files(path)
        for where, record in (_rows(file) if file.suffix == ".parquet" else _lines(file))
        if (name := _problem(record, where)) in wanted
    ]
    found: dict[str, Opinion] = {}
    for _, name, opinion in sorted(read, key=lambda one: one[0]):
        if name not in found or found[name].answer is None:
            found[name] = opinion
    return found


def _problem(record: Mapping[str, Any], where: str) -> str:
    """Return a record's problem_id, after checking that it has an answer or a response."""
    name = record.get("problem_id")
    if isinstance(name, str) and {"answer", "response"} & record.keys():
        return name
    raise InputError(
        f"{where}: expected problem_id (a string) and answer or response, got the keys "
        f"{', '.join(record) or 'none'}. Correct it, or fill in answer in disputed.jsonl."
    )


def _index(record: Mapping[str, Any], where: str) -> int:
    """Return a record's sample_index; 0 if it has none."""
    index = record.get("sample_index")
    if index is not None and type(index) is not int:
        raise InputError(f"{where}: expected a whole number as sample_index, got {index!r}.")
    return index or 0


def opinion_of(record: Mapping[str, Any], where: str) -> Opinion:
    """Return the opinion in one record; ``where`` is its place, for errors.

    Raises:
        InputError: The answer or the response is not a text.
    """
    answer, response = record.get("answer"), record.get("response")
    for value in (answer, response):
        if value is not None and (not isinstance(value, str | int) or isinstance(value, bool)):
            raise InputError(f"{where}: expected a text as answer and response, got {value!r}.")
    if answer is not None:
        return Opinion(last_boxed(f"\\boxed{{{encodable(str(answer))}}}"))
    reply = encodable(str(response or ""))
    readable = read_reply(reply, record.get("finish_reason") or "stop")
    return Opinion(readable, reply[-TEXT_CHARACTERS:])


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    return sorted((path / "responses").glob("*.parquet")) or [_only_file(path)]


def _only_file(folder: Path) -> Path:
    files = [file for file in folder.glob("*") if file.suffix in (".jsonl", ".parquet")]
    files = sorted(file for file in files if file.name != QUARANTINED)
    if len(files) != 1:
        raise InputError(
            f"{folder}: expected one .jsonl or .parquet file with opinions, or responses/*.parquet;"
            f" got {', '.join(file.name for file in files) or 'none'}. Name the file itself."
        )
    return files[0]


def _rows(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    from pcl_reasoner.curate.parts import open_parquet, record_batches

    columns = ("problem_id", "sample_index", "answer", "response", "finish_reason")
    present = [name for name in open_parquet(file).schema_arrow.names if name in columns]
    number = 0
    for batch in record_batches(file, present):
        for row in batch.to_pylist():
            yield f"{file}, row {number}", row
            number += 1


def _lines(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, record in json_lines(file, kind=InputError):
        where = f"{file}, line {number}"
        if not isinstance(record, dict):
            raise InputError(
                f"{where}: expected an object, got {str(record)[:80]!r}. Correct the line."
            )
        yield where, record
