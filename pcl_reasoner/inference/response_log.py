"""Log of the responses of a running stage, with the columns of the stage's artifact.

{"problem_id": "5c18d5f0a1b2c3d4", "sample_index": 0, "response": "<think>…", "token_ids":
 [27, …, 2], "finish_reason": "stop", "n_tokens": 41, "seed": 7, "seconds": null,
 "server": "local"}
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.inference.answer_log import AnswerLog, Record

if TYPE_CHECKING:
    from pcl_reasoner.answers.failures import GivenUp
    from pcl_reasoner.core.schemas import Key
    from pcl_reasoner.inference.settings import SamplingConfig

FAILED = ("error", "timeout")
"""Finish reasons of a request that was given up: the response is empty and graded incorrect.

A run that resumes the stage asks for it again."""

RETOKENISED = "retokenised"
"""Extra key of a line in the log: True if the server sent no token ids; the text was re-encoded."""
FAILURE = "failure"
"""Extra key of a failed response's line in the log: the kind of failure."""
LOG_PROBS = "sampled_log_probs"
"""Extra key of a line in the log, if log-probs were asked for: one per token of token_ids."""


def record(
    key: Key,
    response: str,
    token_ids: list[int],
    finish_reason: str,
    seed: int,
    seconds: float | None,
    server: str,
) -> Record:
    """Return a response as a dict with the artifact's columns, in the artifact's order.

    Args:
        key: problem_id and sample_index.
        response: The decoded text, without the final end token.
        token_ids: The sampled ids; the last is an end token if finish_reason is ``stop``.
        finish_reason: ``stop``, ``length``, ``error``, ``timeout``, or another that a server sent.
        seed: The seed that gives this response if it is requested alone.
        seconds: Duration of the request; None if it was given up, and with the local sampler.
        server: Base URL, or ``local``; empty if the request was given up.
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
    """The responses of a running stage, and statistics about them.

    Args:
        path: The JSONL file; lines that a killed run left in it are kept.
    """

    def __init__(self, path: Path) -> None:
        self.finish_reasons: Counter[str] = Counter()
        self.tokens = 0
        self.request_seconds = 0.0
        """Seconds of all answered requests together; not in ``info``, whose bytes are compared."""
        self.retokenised = 0
        self.failures: Counter[str] = Counter()
        """Kind of failure (``status 400``, ``timeout`` …) -> number of failed responses."""
        self.asked_again: Counter[str] = Counter()
        """The same of responses that failed in earlier runs of the stage, and were asked again."""
        super().__init__(path)

    def is_asked_again(self, answer: Record) -> bool:
        """Return whether a response that an earlier run left failed; count it by its kind."""
        if answer["finish_reason"] not in FAILED:
            return False
        if FAILURE in answer:
            self.asked_again[answer[FAILURE]] += 1
        return True

    def note(self, answer: Record) -> None:
        """Add a response to the statistics."""
        self.finish_reasons[answer["finish_reason"]] += 1
        self.tokens += answer["n_tokens"]
        self.request_seconds += answer["seconds"] or 0.0
        self.retokenised += bool(answer.get(RETOKENISED))
        if FAILURE in answer:
            self.failures[answer[FAILURE]] += 1

    @property
    def failed(self) -> int:
        """The number of responses whose request was given up."""
        return sum(self.finish_reasons[reason] for reason in FAILED)

    def info(self) -> dict[str, Any]:
        """Return the statistics for the report; those about servers are omitted if empty."""
        server_figures = {
            "failures": dict(sorted(self.failures.items())),
            "asked_again": dict(sorted(self.asked_again.items())),
            "retried": dict(sorted(self.retried.items())),
            "servers": self.servers,
            "compared": self.compared,
        }
        return {
            "tokens": self.tokens,
            "mean_length": round(self.tokens / max(len(self), 1), 2),
            "finish_reasons": dict(sorted(self.finish_reasons.items())),
            "failed": self.failed,
            "retokenised": self.retokenised,
            **{name: value for name, value in server_figures.items() if value},
        }


def too_many_failed(failed: int, total: int, settings: SamplingConfig, last: GivenUp) -> StageError:
    """Return the error that stops a stage because too many of its responses failed.

    Args:
        failed: Failed responses.
        total: Responses of the stage.
        settings: Uses ``max_failed``, and the limit of seconds.
        last: Why the last one failed.
    """
    advice = "If the server was at fault, correct it"
    if last.finish_reason == "timeout":
        advice = f"Raise request_timeout, which is {settings.answer_seconds():g} s"
    return StageError(
        f"{failed} of {total} responses failed, the limit is max_failed {settings.max_failed:.0%}. "
        f"The last: {last}. {advice}, and run again: nothing is lost, and only responses that are "
        "missing or failed are requested. If they cannot be had, e.g. of a problem that is too "
        "long, raise max_failed: each then counts as wrong."
    )
