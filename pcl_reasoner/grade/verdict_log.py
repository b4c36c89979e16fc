"""What the judge has said while the stage runs: one JSON line a response, kept over a kill.

    {"problem_id": "9f0c…", "sample_index": 3, "right": true, "text": "equal. \\\\boxed{1}",
     "asked": 1}

Between them stands what else a resumed run is to know: the servers that answered, and how many
requests failed and were sent again.

    {"answered_by": {"url": "http://127.0.0.1:41235/v1", "version": "0.32.0", "model": "…"}}
    {"retried": {"connection": 3}}
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from pcl_reasoner.core.artifact import AppendLog
from pcl_reasoner.grade.judge import Judgement
from pcl_reasoner.grade.rewards import Key

_TEXT_CHARACTERS = 2000
"""What is kept of a judge's reply: its end, where its reasons and its verdict are."""
_ANSWERED_BY, _RETRIED = "answered_by", "retried"


class VerdictLog:
    """The judgements that are there, and those to come.

    Args:
        path: The JSONL file; what a killed run left in it is kept.
    """

    def __init__(self, path: Path) -> None:
        self._log = AppendLog(path)  # cuts a torn last line
        self.judgements: dict[Key, Judgement] = {}
        self.servers: list[dict[str, Any]] = []
        """What has answered: url, version, model."""
        self.retried: Counter[str] = Counter()
        """Requests that failed and were sent again, by kind."""
        for line in self._log:
            self._read(line)
        self._retried_kept = self.retried.copy()

    def _read(self, line: dict[str, Any]) -> None:
        if _ANSWERED_BY in line:
            self.servers.append(line[_ANSWERED_BY])
        elif _RETRIED in line:
            self.retried.update(line[_RETRIED])
        else:
            key = line["problem_id"], line["sample_index"]
            self.judgements[key] = Judgement(line["right"], line["text"], line.get("asked", 1))

    def add(self, key: Key, judgement: Judgement) -> None:
        """Keep what the judge said about a response, and what failed until then."""
        kept = Judgement(judgement.right, judgement.text[-_TEXT_CHARACTERS:], judgement.asked)
        said = {"right": kept.right, "text": kept.text, "asked": kept.asked}
        line = {"problem_id": key[0], "sample_index": key[1], **said}
        self._log.append([line, *self._new_retries()])
        self.judgements[key] = kept

    def add_server(self, facts: dict[str, Any]) -> None:
        """Note a server that answers from here on; one that is noted already is left out."""
        if facts not in self.servers:
            self._log.append([{_ANSWERED_BY: facts}])
            self.servers.append(facts)

    def _new_retries(self) -> list[dict[str, Any]]:
        # A copy first: another thread may count a failure of a new kind meanwhile.
        now = self.retried.copy()
        new, self._retried_kept = now - self._retried_kept, now
        return [{_RETRIED: dict(new)}] if new else []

    def close(self) -> None:
        """Close the file."""
        new = self._new_retries()
        if new:
            self._log.append(new)
        self._log.close()

    def info(self) -> dict[str, Any]:
        """Figures: judged responses, further questions about them, and what cannot be read."""
        found = self.judgements.values()
        return {
            "judged": len(found),
            "asked_again": sum(one.asked - 1 for one in found),
            "unreadable": sum(one.right is None for one in found),
            **({"retried": dict(sorted(self.retried.items()))} if self.retried else {}),
        }
