"""A judge model says whether a response's answer is right; spoken to as to any OpenAI server.

prompt  … reference answer: 8 … candidate: "so the answer is \\\\boxed{008}" …
reply   "The candidate's box holds 008, which is 8. \\\\boxed{1}"
-> reward 1.0, judge_text the reply
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.grade.answers import after_thinking, last_boxed
from pcl_reasoner.inference.dialogue import Prompt
from pcl_reasoner.inference.fleet import Fleet, Server
from pcl_reasoner.inference.post import GivenUp, Passing, kind_of, overloaded
from pcl_reasoner.inference.requests import Request, body_of
from pcl_reasoner.inference.settings import SamplingConfig


@dataclass(frozen=True)
class Judgement:
    """What the judge said.

    Args:
        right: None when no reply could be read.
        text: The last reply.
        asked: How often it was asked.
    """

    right: bool | None
    text: str
    asked: int = 1


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
    """A judge behind the servers of a fleet.

    Args:
        fleet: The servers; its settings are the judge's.
        thinking: Whether it thinks first, where its template can be told.
        attempts: Times that it is asked about one response.
        retried: Where requests that failed and were sent again are counted, by kind.
    """

    def __init__(self, fleet: Fleet, thinking: bool, attempts: int, retried: Counter[str]) -> None:
        self.fleet, self.thinking, self.attempts = fleet, thinking, attempts
        self.retried = retried

    async def ask(self, name: str, prompt: str) -> Judgement:
        """Ask until a reply can be read.

        Args:
            name: Of the response, for errors.
            prompt: The filled prompt.

        Raises:
            StageError: No server answers, or one refuses the request.
        """
        text, right, asked = "", None, 0
        while right is None and asked < self.attempts:
            text = await self._reply(name, prompt, self.fleet.settings.seed + asked)
            right, asked = read_reply(text), asked + 1
        return Judgement(right, text, asked)

    async def _reply(self, name: str, prompt: str, seed: int) -> str:
        """One reply; a failure that may pass is waited for, elsewhere first."""
        body = body_for(prompt, self.fleet.settings, self.thinking, seed)
        failed_on: list[str] = []
        while True:
            server = await self.fleet.take(failed_on)
            url, lives = server.url, server.lives
            try:
                content = _content(await self.fleet.ask(server, url, body))
                self.fleet.answered(server)
                return content
            except GivenUp as refusal:
                raise self._no_answer(name, url, refusal) from refusal
            except (httpx.TransportError, Passing) as failure:
                last: Exception = failure
                self._note(server, failure)
            finally:
                self.fleet.give_back(server)
            if await self.fleet.was_lost(server, lives):
                continue  # the server's end, not the question's
            failed_on.append(url)
            retries = self.fleet.settings.retries
            if len(failed_on) > retries or self.fleet.all_fail(retries):
                raise self._no_answer(name, url, last)

    def _note(self, server: Server, failure: Exception) -> None:
        """Count a failure by its kind, and let the server rest."""
        self.retried[kind_of(failure)] += 1
        if isinstance(failure, httpx.ReadTimeout):
            return  # one answer that takes too long says nothing of the others
        retry_after = failure.retry_after if isinstance(failure, Passing) else None
        self.fleet.failed(server, retry_after, overloaded(failure))

    def _no_answer(self, name: str, url: str, why: Exception) -> StageError:
        return StageError(
            f"the judge does not answer about {name} ({url}: {type(why).__name__}: {why}). Check "
            "placement.judge_urls or placement.judging, and the settings judge_*, then run again: "
            "verdicts that are there already are kept."
        )


def body_for(prompt: str, settings: SamplingConfig, thinking: bool, seed: int) -> dict[str, Any]:
    """A question's JSON: every sampling field, as a server takes from the weights what is left out.

    A template that has no thinking mode passes over ``chat_template_kwargs``.
    """
    messages = [{"role": "user", "content": prompt}]
    request = Request(Prompt("", messages, []), 0, 1, seed, settings.max_tokens or 1)
    told = {"chat_template_kwargs": {"enable_thinking": thinking}, "return_token_ids": False}
    return {**body_of(request, settings), **told}


def _content(answer: Mapping[str, Any]) -> str:
    try:
        content = answer["choices"][0]["message"]["content"]
    except (LookupError, TypeError) as error:
        raise Passing("a choice without a message") from error
    # A server that splits thoughts off gives no content when the judge never ended them.
    return content or ""
