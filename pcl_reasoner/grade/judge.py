"""A judge model says whether a response's answer is correct; spoken to as to any OpenAI server.

prompt  … reference answer: 8 … candidate: "so the answer is \\\\boxed{008}" …
reply   "The candidate's box holds 008, which is 8. \\\\boxed{1}"
-> reward 1.0, judge_text the reply
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.grade.answers import after_thinking, last_boxed
from pcl_reasoner.inference.asking import Asker
from pcl_reasoner.inference.dialogue import Prompt
from pcl_reasoner.inference.post import GivenUp, Passing
from pcl_reasoner.inference.requests import Request, body_of
from pcl_reasoner.inference.settings import SamplingConfig


@dataclass(frozen=True)
class Judgement:
    """What the judge said.

    Args:
        correct: None when no reply could be read.
        text: The last reply.
        asked: How often it was asked.
    """

    correct: bool | None
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
        asker: Of its servers; the fleet's settings are the judge's.
        thinking: Whether it thinks first, where its template can be told.
        attempts: Times that it is asked about one response.
    """

    def __init__(self, asker: Asker, thinking: bool, attempts: int) -> None:
        self.asker, self.thinking, self.attempts = asker, thinking, attempts

    async def ask(self, name: str, prompt: str) -> Judgement:
        """Ask until a reply can be read.

        Args:
            name: Of the response, for errors.
            prompt: The filled prompt.

        Raises:
            StageError: No server answers, or one refuses the request.
        """
        settings = self.asker.fleet.settings
        text, correct, asked = "", None, 0
        while correct is None and asked < self.attempts:
            body = body_for(prompt, settings, self.thinking, settings.seed + asked)
            try:
                text = await self.asker.ask(body, _content)
            except GivenUp as refusal:
                raise _no_answer(name, refusal) from refusal
            correct, asked = read_reply(text), asked + 1
        return Judgement(correct, text, asked)


def _no_answer(name: str, why: Exception) -> StageError:
    return StageError(
        f"the judge does not answer about {name} ({why}). Check placement.judge_urls or "
        "placement.judging, and the settings judge_*, then run again: verdicts that are there "
        "already are kept."
    )


def body_for(prompt: str, settings: SamplingConfig, thinking: bool, seed: int) -> dict[str, Any]:
    """A question's JSON: every sampling field, as a server takes from the weights what is left out.

    A template that has no thinking mode passes over ``chat_template_kwargs``.
    """
    messages = [{"role": "user", "content": prompt}]
    request = Request(Prompt("", messages, []), 0, 1, seed, settings.max_new_tokens or 1)
    told = {"chat_template_kwargs": {"enable_thinking": thinking}, "return_token_ids": False}
    return {**body_of(request, settings), **told}


def _content(answer: Mapping[str, Any], seconds: float, url: str) -> str:
    try:
        content = answer["choices"][0]["message"]["content"]
    except (LookupError, TypeError) as error:
        raise Passing("a choice without a message") from error
    # A server that splits thoughts off gives no content when the judge never ended them.
    return content or ""
