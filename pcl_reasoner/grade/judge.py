"""Asks a judge model, on an OpenAI-compatible server, whether a response is correct.

prompt  … reference answer: 8 … candidate: "so the answer is \\\\boxed{008}" …
reply   "The candidate's box holds 008, which is 8. \\\\boxed{1}"
-> reward 1.0, judge_text the reply
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pcl_reasoner.answers.chat import content_of
from pcl_reasoner.answers.failures import GivenUp
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schemas import Key
from pcl_reasoner.grade.agreement import unsure
from pcl_reasoner.grade.config import GradeConfig
from pcl_reasoner.inference.asking import Asker
from pcl_reasoner.inference.dialogue import Prompt
from pcl_reasoner.inference.requests import Request, body_of
from pcl_reasoner.inference.settings import SamplingConfig
from pcl_reasoner.verifiers.answers import (
    after_thinking,
    last_boxed,
    why_no_answer,
    without_thinking,
)

JudgeQuestion = tuple[Key, str]
"""The key of a response, and the prompt that asks the judge about it."""


@dataclass(frozen=True)
class Judgement:
    """The judge's verdict on one response.

    Args:
        correct: The verdict; None if no reply had a readable verdict.
        text: The judge's last reply.
        asked: How often the judge was asked.
    """

    correct: bool | None
    text: str
    asked: int = 1


def fill_prompt(prompt: str, ground_truth: str, candidate: str) -> str:
    """Replace {ground_truth} and {candidate} in the prompt; other braces stay unchanged."""
    fields = {"{ground_truth}": ground_truth, "{candidate}": candidate}
    return re.sub(r"\{ground_truth\}|\{candidate\}", lambda found: fields[found[0]], prompt)


def candidate_text(record: Mapping[str, Any], last_tokens: int) -> str | None:
    """Return what the judge reads of a response: the end of the text after ``</think>``.

    ``last_tokens`` is converted to characters with the response's mean characters per token.

    Args:
        record: ``response`` is the complete response, ``n_tokens`` its length in tokens.
        last_tokens: Tokens at the end that the judge reads.

    Returns:
        The text; None if the think part was never closed.
    """
    response, n_tokens = record["response"] or "", record["n_tokens"]
    answered = after_thinking(response)
    if answered is None or n_tokens <= last_tokens:
        return answered
    return answered[-math.ceil(len(response) * last_tokens / n_tokens) :]


def question_about(
    config: GradeConfig, prompt: str, record: Mapping[str, Any], truth: str
) -> JudgeQuestion | None:
    """Return the judge's question about a response; None if the judge is not asked.

    It is not asked about a response without an answer. With method ``cascade`` it is asked only if
    the rule's verdict is uncertain.

    Args:
        config: The settings of the stage ``grade``.
        prompt: The judge's prompt, not filled.
        record: problem_id, sample_index, response, finish_reason, n_tokens.
        truth: The problem's ground truth.
    """
    candidate = candidate_text(record, config.last_tokens)
    if why_no_answer(candidate, record["finish_reason"]) is not None:
        return None
    if config.method == "cascade" and not unsure(last_boxed(candidate or ""), truth):
        return None
    return (record["problem_id"], record["sample_index"]), fill_prompt(
        prompt, truth, candidate or ""
    )


def read_reply(reply: str) -> bool | None:
    """Return True if the last box is ``\\boxed{1}``, False for ``\\boxed{0}``, else None.

    If the judge thinks first, only the text after its think part is read.
    """
    answered = without_thinking(reply)
    box = last_boxed(answered) if answered is not None else None
    return {"1": True, "0": False}.get(box or "")


async def ask_judge(
    asker: Asker[Any], name: str, prompt: str, thinking: bool, attempts: int
) -> Judgement:
    """Ask about one response until a reply has a readable verdict, with another seed each time.

    Args:
        asker: Sends requests to the servers; ``asker.fleet.settings`` has the sampling settings.
        name: The response's name, for errors.
        prompt: The filled prompt.
        thinking: Whether the judge thinks first, if its chat template supports the choice.
        attempts: Maximum number of replies.

    Raises:
        StageError: No server answers, or one refuses the request.
    """
    settings = asker.fleet.settings
    text, correct, asked = "", None, 0
    while correct is None and asked < attempts:
        body = body_for(prompt, settings, thinking, settings.seed + asked)
        text = await _reply(asker, name, body)
        correct, asked = read_reply(text), asked + 1
    return Judgement(correct, text, asked)


async def _reply(asker: Asker[Any], name: str, body: dict[str, Any]) -> str:
    """Return the judge's reply to one request; ``name`` is the response's name, for errors."""
    try:
        return await asker.ask(body, content_of)
    except GivenUp as refusal:
        raise StageError(
            f"the judge does not answer about {name} ({refusal}). Check placement.judge_urls "
            "or placement.judging, and the settings judge_*, then run again: earlier verdicts "
            "are kept."
        ) from refusal


def body_for(prompt: str, settings: SamplingConfig, thinking: bool, seed: int) -> dict[str, Any]:
    """Return a request's JSON, with every sampling field.

    For a missing field the server would use the default in the judge's model folder. A chat
    template without a thinking mode ignores ``chat_template_kwargs``.
    """
    messages = [{"role": "user", "content": prompt}]
    request = Request(Prompt("", messages, []), 0, 1, seed, settings.max_new_tokens or 1)
    return {
        **body_of(request, settings),
        "chat_template_kwargs": {"enable_thinking": thinking},
        "return_token_ids": False,
    }
