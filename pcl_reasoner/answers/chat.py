"""Sends one chat completion request to one server, and reads its answer by one schema.

POST {base}/chat/completions
{"choices": [{"index": 0, "message": {"content": "<think>…"}, "token_ids": [27, …],
  "finish_reason": "stop"}, …], "prompt_token_ids": [1, 414, …], "usage": {"prompt_tokens": 31}}
"""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar

import httpx
from pydantic import BaseModel, BeforeValidator, Field

from pcl_reasoner.answers.exchange import exchange, page_of
from pcl_reasoner.answers.failures import Passing, check_status
from pcl_reasoner.formats.records import encodable

Sent = TypeVar("Sent")
Send = Callable[[httpx.AsyncClient, str, dict[str, Any]], Awaitable[Sent]]
"""(client, base URL, request's JSON) -> the answer; raises the errors of `post`."""


def _encodable(value: Any) -> Any:
    return encodable(value) if isinstance(value, str) else value


Text = Annotated[str, BeforeValidator(_encodable)]
TokenId = Annotated[int, Field(strict=True, ge=0, lt=1 << 31)]


class Message(BaseModel):
    """What the model said; the think part may be apart from it, under either name."""

    content: Text | None = None
    reasoning_content: Text | None = None
    reasoning: Text | None = None


class Choice(BaseModel):
    """One response."""

    index: Annotated[int, Field(strict=True, ge=0)] | None = None
    message: Message | None = None
    token_ids: list[TokenId] | None = None
    finish_reason: Annotated[str, Field(max_length=64)] | None = None
    logprobs: Any = None


class Usage(BaseModel):
    """How many tokens the server counted."""

    prompt_tokens: Annotated[int, Field(strict=True, ge=0)] | None = None


class ChatAnswer(BaseModel):
    """A chat completion, with vLLM's fields; servers send more, which is ignored."""

    choices: list[Choice]
    prompt_token_ids: list[TokenId] | None = None
    usage: Usage | None = None


async def post(http: httpx.AsyncClient, url: str, body: dict[str, Any]) -> ChatAnswer:
    """Request ``body["n"]`` responses from a server.

    Returns:
        The answer, with its choices in the order of their indices.

    Raises:
        GivenUp: The server refuses the request.
        Passing: The failure may be temporary, or the answer is unusable.
        httpx.TransportError: The connection failed; this may be temporary too.
        StageError: The server requires another API key.
    """
    n, limit = body["n"], body.get("max_tokens") or body.get("max_completion_tokens") or 0
    answer = await exchange(http, "POST", f"{url}/chat/completions", tokens=n * limit, json=body)
    check_status(url, answer)
    page = page_of(answer, ChatAnswer)
    longest = max((len(one.token_ids or ()) for one in page.choices), default=0)
    if limit and longest > limit:
        raise Passing(f"a response of {longest:,} tokens, {limit:,} were allowed")
    if len(page.choices) != n:
        raise Passing(f"{len(page.choices)} choices, expected {n}")
    indices = [one.index for one in page.choices if one.index is not None]
    if indices and sorted(indices) != list(range(n)):
        raise Passing(f"choices with the indices {indices[:8]}, expected 0 to {n - 1}")
    page.choices.sort(key=lambda choice: choice.index or 0)
    return page


def content_of(answer: ChatAnswer, seconds: float, url: str) -> str:
    """Return the text of a chat completion's only choice; a ``read`` function of `Asker.ask`.

    Raises:
        Passing: The choice has no message.
    """
    message = answer.choices[0].message
    if message is None:
        raise Passing("a choice without a message")
    # A server that removes the think part sends no content if the think part was never closed.
    return message.content or ""
