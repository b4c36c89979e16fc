"""A judge model says whether a response's answer is right; spoken to as to any OpenAI server.

prompt  … reference answer: 8 … candidate: "so the answer is \\\\boxed{008}" …
reply   "The candidate's box holds 008, which is 8. \\\\boxed{1}"
-> reward 1.0, judge_text the reply
"""

from __future__ import annotations

import itertools
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TypeVar

import httpx

from pcl_reasoner.errors import StageError
from pcl_reasoner.grade.answers import after_thinking, last_boxed

ASKED_AT_MOST = 3
"""Times that the judge is asked about one response before it counts as not graded."""
IN_FLIGHT_PER_SERVER = 32
"""Questions that one server works on at a time; results do not depend on it."""
_WAITS_SECONDS = (0.5, 2.0, 8.0, 30.0)
"""Pauses between attempts when a server is busy or away."""
_TIME_OUT = httpx.Timeout(600.0, connect=10.0)

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class JudgeSampling:
    """How the judge is sampled.

    Args:
        model: The model's name at the server.
        temperature: 0 is greedy; then re-asking is of no use.
        top_p: Nucleus.
        max_tokens: New tokens a reply, the judge's own thinking included.
        seed: Of the first attempt; each further attempt takes the next.
    """

    model: str
    temperature: float
    top_p: float
    max_tokens: int
    seed: int


@dataclass(frozen=True)
class Judgement:
    """What the judge said.

    Args:
        right: None when no reply could be read.
        text: The last reply.
    """

    right: bool | None
    text: str


def fill_prompt(prompt: str, ground_truth: str, candidate: str) -> str:
    """Put both fields into the prompt; all other braces stay as they are."""
    fields = {"{ground_truth}": ground_truth, "{candidate}": candidate}
    return re.sub(r"\{ground_truth\}|\{candidate\}", lambda found: fields[found[0]], prompt)


def candidate_text(response: str, n_tokens: int, last_tokens: int) -> str | None:
    """The end of a response's answer, as the judge reads it.

    A response's share of ``last_tokens`` is taken in characters: its own mean length of a token
    says how many. Only text after a closed think part counts, as when grading by rule.

    Args:
        response: The whole response.
        n_tokens: Its length in tokens.
        last_tokens: How many of them the judge sees.

    Returns:
        The text; None when the think part was never closed.
    """
    answered = after_thinking(response)
    if answered is None or n_tokens <= last_tokens:
        return answered
    return answered[-math.ceil(len(response) * last_tokens / n_tokens) :]


def read_reply(reply: str) -> bool | None:
    """True for a last ``\\boxed{1}``, False for ``\\boxed{0}``, None for all else.

    A judge that thinks first is read after its thoughts.
    """
    answered = after_thinking(reply) if "<think>" in reply or "</think>" in reply else reply
    box = last_boxed(answered) if answered is not None else None
    return {"1": True, "0": False}.get(box or "")


class Judge:
    """A judge behind one or more OpenAI-compatible servers, taken in turn.

    Args:
        urls: Each ends in ``/v1``.
        sampling: How it is sampled.
    """

    def __init__(self, urls: list[str], sampling: JudgeSampling) -> None:
        self.sampling = sampling
        self.in_flight = IN_FLIGHT_PER_SERVER * len(urls)
        self._turn = itertools.cycle([url.rstrip("/") for url in urls])
        limits = httpx.Limits(max_connections=self.in_flight)
        self._client = httpx.Client(timeout=_TIME_OUT, limits=limits)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def ask(self, prompt: str) -> Judgement:
        """Ask until a reply can be read, at most ASKED_AT_MOST times.

        Raises:
            StageError: No server answers, or one refuses the request.
        """
        text = ""
        for attempt in range(ASKED_AT_MOST):
            text = self._reply(prompt, self.sampling.seed + attempt)
            right = read_reply(text)
            if right is not None:
                return Judgement(right, text)
        return Judgement(None, text)

    def _reply(self, prompt: str, seed: int) -> str:
        body = {
            "model": self.sampling.model,
            "messages": [{"role": "user", "content": prompt}],
            "temperature": self.sampling.temperature,
            "top_p": self.sampling.top_p,
            "max_tokens": self.sampling.max_tokens,
            "seed": seed,
        }
        failure = ""
        for pause in (0.0, *_WAITS_SECONDS):
            time.sleep(pause)
            url = f"{next(self._turn)}/chat/completions"
            try:
                response = self._client.post(url, json=body)
            except httpx.TransportError as error:
                failure = f"{url}: {type(error).__name__}: {error}"
                continue
            if response.status_code == 200:
                return _content(response, url)
            failure = f"{url}: status {response.status_code}: {response.text[:300]}"
            if response.status_code < 500 and response.status_code != 429:
                break
        raise StageError(
            f"the judge does not answer ({failure}). Check placement.judge_urls and judge_model, "
            "then run again: verdicts that are there already are kept."
        )


def _content(response: httpx.Response, url: str) -> str:
    try:
        content = response.json()["choices"][0]["message"]["content"]
    except (ValueError, LookupError, TypeError) as error:
        raise StageError(
            f"{url}: the reply is not that of an OpenAI-compatible server: {response.text[:300]}"
        ) from error
    # A server that splits thoughts off gives no content when the judge never ended them.
    return content or ""


def each_in_flight(
    function: Callable[[_Item], _Result], items: Iterable[_Item], in_flight: int
) -> Iterator[_Result]:
    """Apply a function to many items at once, reading no more items than are in flight.

    Results come as they are ready, in no order.
    """
    with ThreadPoolExecutor(in_flight) as pool:
        pending: set[Future[_Result]] = set()
        try:
            for item in items:
                pending.add(pool.submit(function, item))
                if len(pending) >= in_flight:
                    done, pending = wait(pending, return_when=FIRST_COMPLETED)
                    yield from (future.result() for future in done)
            while pending:
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        finally:
            # After an error the questions that wait their turn are not asked any more.
            pool.shutdown(wait=False, cancel_futures=True)
