"""Log of responses while they arrive: an answer log with the columns of the artifact.

{"problem_id": "5c18d5f0a1b2c3d4", "sample_index": 0, "response": "<think>…", "token_ids":
 [27, …, 2], "finish_reason": "stop", "n_tokens": 41, "seed": 7, "seconds": null,
 "server": "local"}
"""

from collections import Counter
from pathlib import Path
from typing import Any

from pcl_reasoner.core.schemas import Key
from pcl_reasoner.inference.answer_log import AnswerLog, Record

FAILED = ("error", "timeout")
"""Finish reasons of a request that was given up: the response is empty and graded not correct."""

RETOKENISED = "retokenised"
"""Key of a record, in the log only: its server sent no token ids, so its text was re-encoded."""
FAILURE = "failure"
"""Key of a failed record, in the log only: its kind of failure."""


def record(
    key: Key,
    response: str,
    token_ids: list[int],
    finish_reason: str,
    seed: int,
    seconds: float | None,
    server: str,
) -> Record:
    """One response, with the artifact's columns in their order.

    Args:
        key: problem_id and sample_index.
        response: The decoded ids without the final end-of-turn token.
        token_ids: The sampled ids, with the end-of-turn id where finish_reason is ``stop``.
        finish_reason: ``stop``, ``length``, ``error``, ``timeout``, or what the server reported.
        seed: The seed of this response alone.
        seconds: Duration of the request; None where responses are drawn in batches.
        server: Base URL, or ``local``; empty where the request was given up.
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
    """The responses of a running stage, with figures about them.

    Args:
        path: The JSONL file; lines that a killed run left in it are kept.
    """

    def __init__(self, path: Path) -> None:
        self.finish_reasons: Counter[str] = Counter()
        self.tokens = 0
        self.retokenised = 0
        self.failures: Counter[str] = Counter()
        """Failed responses by kind: ``status 400``, ``timeout`` …"""
        super().__init__(path)

    def note(self, answer: Record) -> None:
        """Add a response to the figures."""
        self.finish_reasons[answer["finish_reason"]] += 1
        self.tokens += answer["n_tokens"]
        self.retokenised += bool(answer.get(RETOKENISED))
        if FAILURE in answer:
            self.failures[answer[FAILURE]] += 1

    @property
    def failed(self) -> int:
        """The number of responses whose request was given up."""
        return sum(self.finish_reasons[reason] for reason in FAILED)

    def info(self) -> dict[str, Any]:
        """Figures for the report; the servers' figures are omitted where empty."""
        server_figures = {
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
            **{name: value for name, value in server_figures.items() if value},
        }
