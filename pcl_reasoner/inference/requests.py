"""What is asked of a server: one request a run of missing samples, all fields explicit.

    POST {base}/chat/completions
    {"model": "policy", "messages": […], "n": 8, "seed": 40, "temperature": 0.6, "top_k": 40, …}

A server draws ``n`` responses at seed s as it would draw eight requests at s, s+1 …, so problems'
seeds are n apart, and what a kill left out of a problem is asked for at its own seed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pcl_reasoner.inference.dialogue import Dialogue, Prompt
from pcl_reasoner.inference.response_log import ResponseLog
from pcl_reasoner.inference.settings import SamplingConfig


@dataclass(frozen=True)
class Request:
    """A run of samples of one problem: those from ``first`` to ``first + count - 1``."""

    prompt: Prompt
    first: int
    count: int
    seed: int
    max_new_tokens: int


def requests_for(
    prompts: list[Prompt], settings: SamplingConfig, dialogue: Dialogue, records: ResponseLog
) -> Iterator[Request]:
    """The requests that fill what is missing, as few as there are runs of missing samples.

    Those whose responses are expected to be the longest come first: begun last, a few of them
    would keep a server busy while its other places stand empty.

    Args:
        prompts: All prompts, in the order that gives them their seeds.
        settings: The sampling fields.
        dialogue: For the room that a prompt leaves.
        records: What is there.
    """
    # A greedy response is one however often it is asked for, and vLLM refuses n > 1 there.
    together = 1 if settings.temperature == 0 else settings.n
    longest_first = sorted(enumerate(prompts), key=lambda item: -(item[1].expected_tokens or 0.0))
    for ordinal, prompt in longest_first:
        room = max(dialogue.room(prompt, settings.max_model_len), 1)
        start = settings.seed + ordinal * settings.n
        index = 0
        while index < settings.n:
            count = 0
            while (
                index + count < settings.n
                and count < together
                and (prompt.problem_id, index + count) not in records
            ):
                count += 1
            if count:
                yield Request(prompt, index, count, start + index, room)
            index += count or 1


def body_of(request: Request, settings: SamplingConfig) -> dict[str, Any]:
    """The request's JSON: a server takes what is left out from the weights' own defaults.

    No chat template is in it: vLLM refuses one unless told to trust it, so the server is started
    with it, and ``proof`` compares.
    """
    return {
        "model": settings.served_model,
        "messages": request.prompt.messages,
        "n": request.count,
        "seed": request.seed,
        "max_tokens": request.max_new_tokens,
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "top_k": settings.top_k or -1,  # both are "all" today, older servers know -1 alone
        "min_p": settings.min_p,
        "repetition_penalty": settings.repetition_penalty,
        "stream": False,
        "return_token_ids": True,
    }
