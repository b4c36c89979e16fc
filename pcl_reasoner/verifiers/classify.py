"""Asks a reward model, on a vLLM pooling server, for the score of one response.

    POST {root}/classify {"model": "reward", "messages": [user's turn, assistant's turn],
                          "add_generation_prompt": false, "use_activation": false}
    -> {"model": "reward", "data": [{"index": 0, "label": "reward", "probs": [-3.33],
        "num_classes": 1}], "usage": {"prompt_tokens": 27, …}}

Without ``use_activation``, ``probs`` has the raw score, in spite of its name.
"""

import math
from collections.abc import Mapping
from typing import Any

import httpx

from pcl_reasoner.answers.exchange import exchange, json_of
from pcl_reasoner.answers.failures import GivenUp, Passing, check_status, message_of
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.inference.fleet import Fleet
from pcl_reasoner.inference.fleet_server import Server

TOO_LONG = "too_long"
"""Kind of failure: the conversation is longer than the model's context."""
_TRIAL = [{"role": "user", "content": "1 + 1?"}, {"role": "assistant", "content": "2"}]
_NOT_JSON = "not JSON compliant"
"""Part of vLLM's message (0.32.0, status 400) if a score is NaN or infinite."""


def body_of(model: str, messages: list[dict[str, str]]) -> dict[str, Any]:
    """Return the JSON of a request for the raw score of a conversation.

    Args:
        model: The model's name on the server.
        messages: The user's turn and the assistant's turn.
    """
    flags = {"add_generation_prompt": False, "use_activation": False}
    return {"model": model, "messages": messages, **flags}


async def classify(http: httpx.AsyncClient, url: str, body: dict[str, Any]) -> dict[str, Any]:
    """Send one request to one server, and return the answer's JSON.

    Args:
        http: The client.
        url: The server's base URL, which ends in ``/v1``.
        body: The request's JSON, from `body_of`.

    Raises:
        GivenUp: The server refuses the request; kind TOO_LONG if the conversation is too long.
        Passing: The failure may be temporary.
        httpx.TransportError: The connection failed; this may be temporary too.
        StageError: The score is NaN or infinite, or the server requires another API key.
    """
    answer = await exchange(http, "POST", f"{url.removesuffix('/v1')}/classify", json=body)
    if answer.status_code == 400:
        _check_refusal(url, answer)
    check_status(url, answer)
    value = json_of(answer)
    if not isinstance(value, dict):
        raise Passing(f"an answer that is not a JSON object: {message_of(answer)}")
    return value


def _check_refusal(url: str, answer: httpx.Response) -> None:
    """Raise the error of a status 400 whose cause is known; else return."""
    if _NOT_JSON in answer.text:
        raise StageError(_not_finite(url, "NaN or infinite"))
    try:
        parameter = json_of(answer)["error"]["param"]
    except (Passing, KeyError, TypeError):
        return
    if parameter == "input_tokens":
        raise GivenUp("error", TOO_LONG, f"status 400: {message_of(answer)}")


def read_score(answer: Mapping[str, Any], model: str, url: str) -> float:
    """Return the raw score in a server's answer.

    Args:
        answer: The answer's JSON.
        model: The model's name, as it was requested.
        url: The server's base URL, for errors.

    Raises:
        Passing: The answer has no score.
        StageError: The answer is from another model, has several classes, or is not finite.
    """
    try:
        (found,) = answer["data"]
        scores, named = [float(one) for one in found["probs"]], answer["model"]
    except (LookupError, TypeError, ValueError) as error:
        raise Passing(f"an answer without a score: {str(answer)[:300]}") from error
    if named != model:
        raise StageError(
            f"{url}: answers for the model {named!r}, expected {model!r}. Correct the URL in the "
            "launch file (placement.score_urls), or set the reward model's name."
        )
    if len(scores) != 1:
        raise StageError(
            f"{url}: the model has {len(scores)} classes, a reward model has 1: one score per "
            "response. Serve a model for sequence classification with one label."
        )
    if not math.isfinite(scores[0]):
        raise StageError(_not_finite(url, scores[0]))
    return scores[0]


def _not_finite(url: str, score: object) -> str:
    return (
        f"{url}: the reward model's score is {score}, expected a finite number. Check its weights, "
        "or serve it in a wider data type, e.g. --dtype float32."
    )


async def check_classifies(fleet: Fleet, server: Server) -> None:
    """Check with one short conversation that a server scores, with one finite number.

    A temporary failure passes: requests are sent again.

    Raises:
        StageError: It does not serve a reward model, or the answer is that of another model.
    """
    name = fleet.settings.served_model
    try:
        answer = await classify(fleet.http, server.url, body_of(name, _TRIAL))
        read_score(answer, name, server.url)
    except httpx.TransportError:
        return
    except (Passing, GivenUp) as failure:
        if isinstance(failure, Passing) and failure.status != 404:
            return
        raise StageError(
            f"{server.url}: does not serve a reward model: /classify answers with {failure}. "
            "Start the server with vllm serve FOLDER --runner pooling, where FOLDER has a model "
            "for sequence classification with one label."
        ) from failure
