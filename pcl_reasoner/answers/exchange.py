"""Sends one request, and reads the answer within a limit of seconds and of bytes.

httpx limits the seconds between two reads only, and not the bytes: a server that sends one byte per
second would hold a request for ever, and 600 KB of gzip can become 600 MB.
"""

import asyncio
import json
from typing import Any, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from pcl_reasoner.answers.failures import Passing, message_of

Page = TypeVar("Page", bound=BaseModel)

SMALL_BYTES = 16 << 20
"""Limit of every answer, after decompression; answers with tokens may have more."""
TOKEN_BYTES = 512
"""Bytes per token that an answer may have: vLLM sends about 150 for a token with its log-prob."""


async def exchange(
    http: httpx.AsyncClient,
    method: str,
    url: str,
    *,
    tokens: int = 0,
    seconds: float | None = None,
    **request: Any,
) -> httpx.Response:
    """Send a request and read the whole answer, decompressed.

    Args:
        http: The client.
        method: ``GET`` or ``POST``.
        url: The page.
        tokens: Tokens that the answer may describe; its limit of bytes grows with them.
        seconds: Limit for the whole request; None: the client's limit for one read.
        request: E.g. ``json``.

    Raises:
        Passing: The answer is too large, or is not compressed as it says.
        httpx.TransportError: The connection failed, or the answer was not complete in time.
    """
    limit = SMALL_BYTES + tokens * TOKEN_BYTES
    content = bytearray()
    try:
        async with (
            asyncio.timeout(http.timeout.read if seconds is None else seconds),
            http.stream(method, url, **request) as answer,
        ):
            async for part in answer.aiter_bytes():
                content += part
                if len(content) > limit:
                    raise Passing(f"an answer of more than {limit:,} bytes")
    except TimeoutError as error:
        raise httpx.ReadTimeout("the answer was not complete in time") from error
    except httpx.DecodingError as error:
        raise Passing(f"an answer that is not compressed as it says ({error})") from error
    coded = (b"content-encoding", b"content-length", b"transfer-encoding")
    headers = [(name, value) for name, value in answer.headers.raw if name.lower() not in coded]
    return httpx.Response(
        answer.status_code, headers=headers, content=bytes(content), request=answer.request
    )


def json_of(answer: httpx.Response) -> Any:
    """Return an answer's JSON.

    Raises:
        Passing: It is no JSON, or is nested too deeply.
    """
    try:
        return json.loads(answer.content)
    except (ValueError, RecursionError) as error:
        raise Passing(f"an answer that is not JSON: {message_of(answer)}") from error


def page_of(answer: httpx.Response, schema: type[Page]) -> Page:
    """Return an answer's JSON as a schema's object.

    Raises:
        Passing: It is no JSON, or not as the schema says; the message shows its first bytes.
    """
    value = json_of(answer)
    try:
        return schema.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(one) for one in first["loc"])
        raise Passing(f"an odd answer ({place}: {first['msg']}): {message_of(answer)}") from error
