"""The responses while they come in: one JSON line each, found again by key after a kill.

    {"problem_id": "5c18d5f0a1b2c3d4", "sample_index": 0, "response": "<think>…", "token_ids":
     [27, …, 2], "finish_reason": "stop", "n_tokens": 41, "seed": 7, "seconds": null,
     "server": "embedded"}

Between them stands what else a resumed run is to know: the servers that answered, and how many
requests failed since the line before of this kind.

    {"answered_by": {"url": "http://127.0.0.1:41235/v1", "version": "0.32.0", "model": "…"}}
    {"retried": {"status 503": 2}}

A published run's responses are tens of gigabytes, so only the keys and where their lines are
stay in memory.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pcl_reasoner.core.artifact import AppendLog

Key = tuple[str, int]
Record = dict[str, Any]

FAILED = ("error", "timeout")
"""Finish reasons of a request that was given up: an empty response, graded as not right."""

RETOKENISED = "retokenised"
"""Mark, in the log only, of a record whose ids a server did not give."""
FAILURE = "failure"
"""In the log only, of a record that failed: which kind of failure it was."""
_ANSWERED_BY, _RETRIED = "answered_by", "retried"


def record(
    key: Key,
    response: str,
    token_ids: list[int],
    finish_reason: str,
    seed: int,
    seconds: float | None,
    server: str,
) -> Record:
    """One response, with the columns of the artifact in their order.

    Args:
        key: problem_id and sample_index.
        response: The decoded ids without the final end-of-turn token.
        token_ids: The ids as drawn, with the end-of-turn id where finish_reason is ``stop``.
        finish_reason: ``stop``, ``length``, ``error``, ``timeout``, or what the server said.
        seed: Of this response alone.
        seconds: The request's, None where responses are drawn in batches.
        server: Base URL, or ``embedded``.
    """
    return {
        "problem_id": key[0],
        "sample_index": key[1],
        "response": response,
        "token_ids": token_ids,
        "finish_reason": finish_reason,
        "n_tokens": len(token_ids),
        "seed": seed,
        "seconds": seconds,
        "server": server,
    }


class Records:
    """The log of a running stage and the place of every key in it.

    Args:
        path: The JSONL file; what a killed run left in it is kept.
    """

    def __init__(self, path: Path) -> None:
        self._log = AppendLog(path)  # cuts a torn last line
        self._places: dict[Key, int] = {}
        self.finish_reasons: Counter[str] = Counter()
        self.tokens = 0
        self.retokenised = 0
        self.failures: Counter[str] = Counter()
        """Responses that failed, by kind: ``status 400``, ``timeout`` …"""
        self.retried: Counter[str] = Counter()
        """Failed requests, those that succeeded later too, by kind; of killed runs all but what
        failed after their last answer."""
        self._retried_kept: Counter[str] = Counter()
        self.servers: list[dict[str, Any]] = []
        """What has answered: url, version, model."""
        self._end = 0
        self._scan()
        self.retried.update(self._retried_kept)

    def _scan(self) -> None:
        """Note the records that a killed run left."""
        with self._log.path.open("rb") as handle:
            handle.seek(self._end)
            for line in handle:
                self._note(json.loads(line), len(line))

    def _note(self, item: Record, size: int) -> None:
        """Take in the record at the end of what is known; its line has ``size`` bytes."""
        if _ANSWERED_BY in item:
            self.servers.append(item[_ANSWERED_BY])
        elif _RETRIED in item:
            self._retried_kept.update(item[_RETRIED])
        else:
            self._places[(item["problem_id"], item["sample_index"])] = self._end
            self.finish_reasons[item["finish_reason"]] += 1
            self.tokens += item["n_tokens"]
            self.retokenised += bool(item.get(RETOKENISED))
            if FAILURE in item:
                self.failures[item[FAILURE]] += 1
        self._end += size

    def _append(self, items: list[Record]) -> None:
        """Append records and note them, without reading their JSON again."""
        self._log.append(items)
        with self._log.path.open("rb") as handle:
            handle.seek(self._end)
            for item, line in zip(items, handle, strict=True):
                self._note(item, len(line))

    def __contains__(self, key: object) -> bool:
        """Is this response there?"""
        return key in self._places

    def __len__(self) -> int:
        """How many responses are there."""
        return len(self._places)

    @property
    def failed(self) -> int:
        """Responses whose request was given up."""
        return sum(self.finish_reasons[reason] for reason in FAILED)

    def add(self, items: Iterable[Record]) -> None:
        """Append records; one whose key is there is left out."""
        new = {(item["problem_id"], item["sample_index"]): item for item in items}
        missing = [item for key, item in new.items() if key not in self._places]
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
        """The records of the given keys, in their order, read from the file one by one."""
        with self._log.path.open("rb") as handle:
            for key in keys:
                handle.seek(self._places[key])
                found: Record = json.loads(handle.readline())
                yield found

    def keys(self) -> list[Key]:
        """All keys, sorted by problem_id, then sample_index."""
        return sorted(self._places)

    def info(self) -> dict[str, Any]:
        """Figures for the report; what only servers do is left out where nothing of it was."""
        of_servers = {
            "failures": dict(sorted(self.failures.items())),
            "retried": dict(sorted(self.retried.items())),
            "servers": self.servers,
        }
        return {
            "tokens": self.tokens,
            "mean_length": round(self.tokens / max(len(self), 1), 2),
            "finish_reasons": dict(sorted(self.finish_reasons.items())),
            "failed": self.failed,
            "retokenised": self.retokenised,
            **{name: value for name, value in of_servers.items() if value},
        }

    def close(self) -> None:
        """Close the file."""
        new = self._new_retries()
        if new:
            self._append(new)
        self._log.close()

    def delete(self) -> None:
        """Close and delete the file: its records are in the artifact now."""
        self.close()
        self._log.path.unlink()
