"""Builds the requests for missing samples; each sets every sampling field explicitly.

    POST {base}/chat/completions
    {"model": "policy", "messages": […], "n": 8, "seed": 40, "temperature": 0.6, "top_k": 40, …}

A request for n responses with seed s gives the same responses as n requests with seeds s, s+1 ….
Therefore the seeds of consecutive problems differ by n. If the process was killed, a sample that is
missing is requested again with its own seed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pcl_reasoner.inference.dialogue import Dialogue, Prompt
from pcl_reasoner.inference.response_log import ResponseLog
from pcl_reasoner.inference.settings import SamplingConfig


@dataclass(frozen=True)
class Request:
    """Consecutive samples of one problem: ``first`` to ``first + count - 1``."""

    prompt: Prompt
    first: int
    count: int
    seed: int
    max_new_tokens: int


def requests_for(
    prompts: list[Prompt], dialogue: Dialogue, records: ResponseLog
) -> Iterator[Request]:
    """Yield the requests: one for each block of consecutive missing samples of a problem.

    At temperature 0 there is one request per sample. Problems with the longest expected responses
    come first; if they came last, most slots of a server would be idle at the end.

    Args:
        prompts: All prompts; a prompt's index determines its seeds.
        dialogue: Has the sampling fields, and computes the token limit of responses.
        records: The responses that exist already.
    """
    settings = dialogue.settings
    # Greedy responses to one prompt are all equal, and vLLM refuses n > 1 at temperature 0.
    together = 1 if settings.temperature == 0 else settings.n
    longest_first = sorted(enumerate(prompts), key=lambda item: -(item[1].expected_tokens or 0.0))
    for ordinal, prompt in longest_first:
        limit = max(dialogue.response_limit(prompt, settings.max_model_len), 1)
        start = settings.seed + ordinal * settings.n
        missing = {i for i in range(settings.n) if (prompt.problem_id, i) not in records}
        index = 0
        while index < settings.n:
            count = 0
            while count < together and index + count in missing:
                count += 1
            if count:
                yield Request(prompt, index, count, start + index, limit)
            index += count or 1


def body_of(request: Request, settings: SamplingConfig, log_probs: bool = False) -> dict[str, Any]:
    """Return the request's JSON, with all sampling fields: servers have their own defaults.

    It has no chat template, because by default vLLM refuses templates in requests. Instead the
    server is started with the template, and proof.py compares the prompt's tokens.

    Args:
        request: The samples to request.
        settings: The sampling fields.
        log_probs: Whether to ask for the log-probs of the sampled tokens.
    """
    return {
        "model": settings.served_model,
        "messages": request.prompt.messages,
        "n": request.count,
        "seed": request.seed,
        "max_tokens": request.max_new_tokens,
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "top_k": settings.top_k or -1,  # 0 and -1 both mean "all"; older servers know only -1
        "min_p": settings.min_p,
        "repetition_penalty": settings.repetition_penalty,
        "stream": False,
        "return_token_ids": True,
        # Of the sampled token, and of no other.
        **({"logprobs": True, "top_logprobs": 0} if log_probs else {}),
    }


def prompt_body(token_ids: Sequence[int], settings: SamplingConfig) -> dict[str, Any]:
    """Return the JSON of a request for the log-probs of a prompt's tokens.

    Args:
        token_ids: The prompt.
        settings: Uses ``served_model``, and the fields that other requests send, too.
    """
    return {
        "model": settings.served_model,
        "prompt": list(token_ids),
        "n": 1,
        "max_tokens": 1,
        "prompt_logprobs": 0,  # of the token itself, and of no other
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "top_k": -1,
        "min_p": settings.min_p,
        "repetition_penalty": settings.repetition_penalty,
        "seed": 0,
        "stream": False,
    }
