"""Build the requests: one per run of consecutive missing samples, every field explicit.

    POST {base}/chat/completions
    {"model": "policy", "messages": […], "n": 8, "seed": 40, "temperature": 0.6, "top_k": 40, …}

At seed s a server draws ``n`` responses as it would draw n single responses at s, s+1 …. Therefore
problems' seeds are n apart, and samples lost in a kill are requested again at their own seeds.
"""

from collections.abc import Iterator
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
    """Build requests for the missing samples: one per run of consecutive missing samples.

    At temperature 0 there is one request per sample. Problems whose responses are expected to be
    the longest come first: at the end, a few of them would keep a server busy while its other slots
    are idle.

    Args:
        prompts: All prompts; their order determines their seeds.
        dialogue: Gives the sampling fields, and the token limit of each prompt's responses.
        records: The responses that exist already.
    """
    settings = dialogue.settings
    # Greedy responses to one prompt are all equal, and vLLM refuses n > 1 at temperature 0.
    together = 1 if settings.temperature == 0 else settings.n
    longest_first = sorted(enumerate(prompts), key=lambda item: -(item[1].expected_tokens or 0.0))
    for ordinal, prompt in longest_first:
        limit = max(dialogue.response_limit(prompt, settings.max_model_len), 1)
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
                yield Request(prompt, index, count, start + index, limit)
            index += count or 1


def body_of(request: Request, settings: SamplingConfig) -> dict[str, Any]:
    """The request's JSON. For a field that is missing, a server uses the weights' own default.

    It has no chat template: vLLM refuses one in a request unless it is started to trust it.
    Instead the server is started with the template, and ``proof`` compares the tokens.
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
    }
