"""A log of a running stage: a JSON line per record, each with its checksum, that survives a kill.

    {"problem_id": "5c18d5f0a1b2c3d4", "sample_index": 0, "correct": true, "crc32": "8d1f03ba"}

``crc32`` is of the line's bytes before it. A record that a disk has changed is therefore found, and
made again. A line without it was written by an earlier version, and is only parsed.
"""

import json
import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pcl_reasoner.core.artifact import atomic_file, fsync
from pcl_reasoner.core.errors import StageError

CHECKSUM = "crc32"
_END = re.compile(rb'(?:, )?"crc32": "([0-9a-f]{8})"}\n\Z')
_END_BYTES = 64
"""More than the bytes of a line's checksum."""


class AppendLog:
    """An append-only JSONL file; opening it removes an incomplete last line.

    The caller chooses the records' keys; ``__iter__`` yields the records that the file already has.

    Raises:
        StageError: On reading, if lines are damaged. They are removed first.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle = path.open("a+b")
        self._handle.seek(0)
        complete = sum(len(line) for line in self._handle if line.endswith(b"\n"))
        self._handle.truncate(complete)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the records of the file."""
        return (record for _, record in self.sized())

    def sized(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield (length of the line in bytes, record) for each record of the file."""
        with self.path.open("rb") as handle:
            for number, line in enumerate(handle, start=1):
                record = read_line(line)
                if record is None:
                    self._remove_damaged(number)
                yield len(line), record or {}

    def _remove_damaged(self, first: int) -> None:
        """Write the file without its damaged lines, and raise the error that says so."""
        removed = 0
        with atomic_file(self.path) as temporary:
            with self.path.open("rb") as lines, temporary.open("wb") as kept:
                for line in lines:
                    if read_line(line) is None:
                        removed += 1
                    else:
                        kept.write(line)
            fsync(temporary)
        self.close()
        raise StageError(
            f"{self.path}: {removed} damaged line{'s' * (removed > 1)}, the first is line {first}. "
            "Something changed it after it had been written. It is removed: give the same command "
            "again to make what it held. Check the disk."
        )

    def append(self, records: list[dict[str, Any]]) -> list[int]:
        """Append records and make them durable (fsync) before returning.

        Returns:
            The length of each line in bytes.
        """
        lines = [_line(record) for record in records]
        self._handle.write(b"".join(lines))
        self._handle.flush()
        os.fsync(self._handle.fileno())
        return [len(line) for line in lines]

    def close(self) -> None:
        """Close the file."""
        self._handle.close()


def _line(record: dict[str, Any]) -> bytes:
    text = json.dumps(record, ensure_ascii=False)[:-1].encode("utf-8", "surrogatepass")
    separator = ", " if record else ""
    return text + f'{separator}"{CHECKSUM}": "{zlib.crc32(text):08x}"}}\n'.encode("ascii")


def read_line(line: bytes) -> dict[str, Any] | None:
    """Return the record of a line, without its checksum; None if the line is damaged."""
    found = _END.search(line, max(0, len(line) - _END_BYTES))
    if found and zlib.crc32(line[: found.start()]) != int(found[1], 16):
        return None
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    record.pop(CHECKSUM, None)
    return record
