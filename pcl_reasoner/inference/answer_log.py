"""What servers answer while a stage runs: one JSON line for each answer, kept over a kill.

    {"problem_id": "5c18d5f0a1b2c3d4", "sample_index": 0, …}

Between the answers stands what else a resumed run must know: the servers that answered, and how
many requests failed since the line before of this kind.

    {"answered_by": {"url": "http://127.0.0.1:41235/v1", "version": "0.32.0", "model": "…"}}
    {"retried": {"status 503": 2}}

A published run's responses are tens of gigabytes, so only the keys and the places of their lines
stay in memory.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pcl_reasoner.core.artifact import AppendLog
from pcl_reasoner.core.schemas import Key

Record = dict[str, Any]

_ANSWERED_BY, _RETRIED = "answered_by", "retried"


class AnswerLog:
    """The log of a running stage and the place of every answer in it.

    Args:
        path: The JSONL file; what a killed run left in it is kept.
    """

    def __init__(self, path: Path) -> None:
        self._log = AppendLog(path)  # cuts a torn last line
        self._places: dict[Key, int] = {}
        self._end = 0
        self.retried: Counter[str] = Counter()
        """Failed requests, those that succeeded later too, by kind; of killed runs all but what
        failed after their last answer."""
        self._retried_kept: Counter[str] = Counter()
        self.servers: list[dict[str, Any]] = []
        """What has answered: url, version, model."""
        for size, line in self._log.sized():
            self._read(line, size)
        self.retried.update(self._retried_kept)

    def note(self, answer: Record) -> None:
        """Take in an answer that a killed run left, or a new one; for figures."""

    def _read(self, line: Record, size: int) -> None:
        """Take in the line at the end of what is known; it has ``size`` bytes."""
        if _ANSWERED_BY in line:
            self.servers.append(line[_ANSWERED_BY])
        elif _RETRIED in line:
            self._retried_kept.update(line[_RETRIED])
        else:
            self._places[(line["problem_id"], line["sample_index"])] = self._end
            self.note(line)
        self._end += size

    def _append(self, lines: list[Record]) -> None:
        """Append lines and take them in, without reading their JSON again."""
        for line, size in zip(lines, self._log.append(lines), strict=True):
            self._read(line, size)

    def __contains__(self, key: object) -> bool:
        """Is this answer there?"""
        return key in self._places

    def __len__(self) -> int:
        """How many answers are there."""
        return len(self._places)

    def add(self, answers: Iterable[Record]) -> None:
        """Append answers; one whose key is there is left out."""
        new = {(answer["problem_id"], answer["sample_index"]): answer for answer in answers}
        missing = [answer for key, answer in new.items() if key not in self._places]
        if missing:
            self._append([*missing, *self._new_retries()])

    def _new_retries(self) -> list[Record]:
        # A copy first: another thread may count a failure of a new kind meanwhile.
        new = self.retried.copy() - self._retried_kept
        return [{_RETRIED: dict(new)}] if new else []

    def add_server(self, facts: dict[str, Any]) -> None:
        """Note a server that answers from here on; one that is noted already is left out."""
        if facts not in self.servers:
            self._append([{_ANSWERED_BY: facts}])

    def read(self, keys: Iterable[Key]) -> Iterator[Record]:
        """The answers of the given keys, in their order, read from the file one by one."""
        with self._log.path.open("rb") as handle:
            for key in keys:
                handle.seek(self._places[key])
                found: Record = json.loads(handle.readline())
                yield found

    def keys(self) -> list[Key]:
        """All keys, sorted by problem_id, then sample_index."""
        return sorted(self._places)

    def close(self) -> None:
        """Close the file."""
        new = self._new_retries()
        if new:
            self._append(new)
        self._log.close()

    def delete(self) -> None:
        """Close and delete the file: its answers are in the artifact now."""
        self.close()
        self._log.path.unlink()
