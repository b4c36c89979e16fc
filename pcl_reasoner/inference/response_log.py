"""The responses while they come in: an answer log with the columns of the artifact.

{"problem_id": "5c18d5f0a1b2c3d4", "sample_index": 0, "response": "<think>…", "token_ids":
 [27, …, 2], "finish_reason": "stop", "n_tokens": 41, "seed": 7, "seconds": null,
 "server": "local"}
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from pcl_reasoner.core.schemas import Key
from pcl_reasoner.inference.answer_log import AnswerLog, Record

FAILED = ("error", "timeout")
"""Finish reasons of a request that was given up: an empty response, graded as not correct."""

RETOKENISED = "retokenised"
"""Mark, in the log only, of a record whose ids a server did not give."""
FAILURE = "failure"
"""In the log only, of a record that failed: which kind of failure it was."""


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
        server: Base URL, or ``local``.
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


class ResponseLog(AnswerLog):
    """The responses of a running stage, and figures of them.

    Args:
        path: The JSONL file; what a killed run left in it is kept.
    """

    def __init__(self, path: Path) -> None:
        self.finish_reasons: Counter[str] = Counter()
        self.tokens = 0
        self.retokenised = 0
        self.failures: Counter[str] = Counter()
        """Responses that failed, by kind: ``status 400``, ``timeout`` …"""
        super().__init__(path)

    def note(self, answer: Record) -> None:
        """Count a response."""
        self.finish_reasons[answer["finish_reason"]] += 1
        self.tokens += answer["n_tokens"]
        self.retokenised += bool(answer.get(RETOKENISED))
        if FAILURE in answer:
            self.failures[answer[FAILURE]] += 1

    @property
    def failed(self) -> int:
        """Responses whose request was given up."""
        return sum(self.finish_reasons[reason] for reason in FAILED)

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
