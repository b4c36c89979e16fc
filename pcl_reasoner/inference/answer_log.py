"""Log of a running stage's answers: one JSON line per answer, which survives a kill.

    {"problem_id": "5c18d5f0a1b2c3d4", "sample_index": 0, …}

Other lines have facts that a resumed run needs for its report: the servers that were used, and the
number of failed requests since the previous ``retried`` line. ``compared``: a start of a server
that agrees with a proof (`recheck`):

    {"answered_by": {"url": "http://127.0.0.1:41235/v1", "version": "0.32.0", "model": "…"}}
    {"retried": {"status 503": 2}}
    {"compared": {"url": "http://127.0.0.1:41235/v1", "started": 1795522160.6, "mean": 2.1e-06, …}}

The responses of a published run are tens of gigabytes. Therefore only the keys and the file offsets
of their lines are kept in memory.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcl_reasoner.core.append_log import AppendLog, read_line
from pcl_reasoner.core.errors import StageError

if TYPE_CHECKING:
    from pcl_reasoner.core.schemas import Key

Record = dict[str, Any]

ANSWERED_BY, _RETRIED, _COMPARED = "answered_by", "retried", "compared"


class AnswerLog:
    """The log of a running stage, with an index of every answer's file offset.

    Args:
        path: The JSONL file; lines that a killed run left in it are kept.
    """

    def __init__(self, path: Path) -> None:
        self._log = AppendLog(path)  # cuts off an incomplete last line
        self._offsets: dict[Key, int] = {}
        self._end = 0
        self.retried: Counter[str] = Counter()
        """Kind of failure -> number of failed requests, including those that succeeded later.

        If a run was killed, its failures after its last answer are missing."""
        self._retried_logged: Counter[str] = Counter()
        self.servers: list[dict[str, Any]] = []
        """Facts about each server that was used: url, version, model."""
        self.compared: list[dict[str, Any]] = []
        """Figures of each start of a server that was compared with a proof."""
        self._appending = threading.Lock()
        for size, line in self._log.sized():
            self._index(line, size, left=True)
        self.retried.update(self._retried_logged)

    @property
    def path(self) -> Path:
        """The JSONL file."""
        return self._log.path

    def note(self, answer: Record) -> None:
        """Called with each answer, new or left by a killed run; subclasses update statistics."""

    def is_asked_again(self, answer: Record) -> bool:
        """Return whether an answer that an earlier run left is no answer; subclasses may say so."""
        return False

    def _index(self, line: Record, size: int, left: bool = False) -> None:
        """Add a line of ``size`` bytes, which starts at offset ``_end``, to the index.

        Args:
            line: The line.
            size: Its bytes.
            left: True if an earlier run left it.
        """
        if ANSWERED_BY in line:
            self.servers.append(line[ANSWERED_BY])
        elif _COMPARED in line:
            self.compared.append(line[_COMPARED])
        elif _RETRIED in line:
            self._retried_logged.update(line[_RETRIED])
        elif not (left and self.is_asked_again(line)):
            self._offsets[(line["problem_id"], line["sample_index"])] = self._end
            self.note(line)
        self._end += size

    def _append(self, lines: list[Record]) -> None:
        """Append lines and index them, without parsing their JSON again."""
        # A server may be compared while another thread writes answers.
        with self._appending:
            for line, size in zip(lines, self._log.append(lines), strict=True):
                self._index(line, size)

    def __contains__(self, key: object) -> bool:
        """Return whether the answer with this key is in the log."""
        return key in self._offsets

    def __len__(self) -> int:
        """Return the number of answers in the log."""
        return len(self._offsets)

    def add(self, answers: Iterable[Record]) -> None:
        """Append answers; an answer whose key is in the log already is skipped."""
        new = {(answer["problem_id"], answer["sample_index"]): answer for answer in answers}
        missing = [answer for key, answer in new.items() if key not in self]
        if missing:
            self._append([*missing, *self._new_retries()])

    def _new_retries(self) -> list[Record]:
        # A copy first: another thread may add a new kind of failure in the meantime.
        new = self.retried.copy() - self._retried_logged
        return [{_RETRIED: dict(new)}] if new else []

    def add_server(self, facts: dict[str, Any]) -> None:
        """Record the facts about a server that is used from now on, unless they are in the log."""
        if facts not in self.servers:
            self._append([{ANSWERED_BY: facts}])

    def add_compared(self, figures: dict[str, Any]) -> None:
        """Record a start of a server that agrees with a proof."""
        self._append([{_COMPARED: figures}])

    def read(self, keys: Iterable[Key]) -> Iterator[Record]:
        """Yield the answers with these keys in the order of the keys, read one by one."""
        with self._log.path.open("rb") as handle:
            for key in keys:
                handle.seek(self._offsets[key])
                record = read_line(handle.readline())
                if record is None:
                    raise StageError(
                        f"{self.path}: the line of {key[0]}/{key[1]} was damaged while the stage "
                        "ran. Give the same command again, and check the disk."
                    )
                yield record

    def keys(self) -> list[Key]:
        """All keys, sorted by problem_id, then sample_index."""
        return sorted(self._offsets)

    def close(self) -> None:
        """Write the failures counted since the last answer, and close the file."""
        if new := self._new_retries():
            self._append(new)
        self._log.close()

    def delete(self) -> None:
        """Close and delete the file, once its answers are in the artifact."""
        self.close()
        self._log.path.unlink()
