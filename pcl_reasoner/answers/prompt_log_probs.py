"""Asks for the log-probs of a prompt's tokens, and reads them from a server's answer.

    POST {base}/completions {"model": "policy", "prompt": [5, 6, 7], "prompt_logprobs": 0, …}
    -> {"choices": [{"prompt_logprobs": [null, {"6": {"logprob": -1.2, "rank": 3}},
                                         {"7": {"logprob": -0.4, "rank": 1}}], …}]}
    -> [-1.2, -0.4]

The first entry is null, because no token predicts the first token.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from pcl_reasoner.answers.exchange import exchange, json_of
from pcl_reasoner.answers.failures import Passing, check_status, message_of

_ROUNDING = 1e-3
"""A log-prob may be above 0 by this much."""


def prompt_log_probs(
    answer: Mapping[str, Any], token_ids: Sequence[int], start: int = 1
) -> list[float]:
    """Read the log-probs of a prompt's tokens from a server's answer.

    Args:
        answer: The answer's JSON.
        token_ids: The prompt.
        start: Index of the first token whose log-prob is read, at least 1.

    Raises:
        Passing: The answer lacks log-probs, has another number of them, or has values that are no
            log-probs.
    """
    try:
        entries = answer["choices"][0]["prompt_logprobs"]
        found = len(entries)
        if found != len(token_ids):
            raise Passing(f"{found} prompt_logprobs, expected {len(token_ids)}")
        places = range(start, found)
        values = [entries[place][str(token_ids[place])]["logprob"] for place in places]
    except (LookupError, TypeError) as error:
        raise Passing(f"no prompt_logprobs of all tokens ({error!r})") from error
    for place, value in zip(places, values, strict=True):
        if type(value) not in (float, int) or not -math.inf < value <= _ROUNDING:
            raise Passing(f"the log-prob of token {place} is {value!r}, which is no log-prob")
    return values


async def complete(http: httpx.AsyncClient, url: str, body: dict[str, Any]) -> dict[str, Any]:
    """Send one request to one server, and return the answer's JSON.

    Args:
        http: The client.
        url: The server's base URL, which ends in ``/v1``.
        body: The request's JSON, from `body_of`.

    Raises:
        GivenUp: The server refuses the request.
        Passing: The failure may be temporary.
        httpx.TransportError: The connection failed; this may be temporary too.
        StageError: The server requires another API key.
    """
    tokens = len(body["prompt"])
    answer = await exchange(http, "POST", f"{url}/completions", tokens=tokens, json=body)
    check_status(url, answer)
    value = json_of(answer)
    if not isinstance(value, dict):
        raise Passing(f"an answer that is not a JSON object: {message_of(answer)}")
    return value
