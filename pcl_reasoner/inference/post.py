"""Sends one chat completion request to one server, and classifies failures as exceptions.

POST {base}/chat/completions -> 200 {"choices": […]}   the answer
400 and all other statuses                             GivenUp: the server refuses the request
404, 408, 425, 429, 5xx, an answer cut off             Passing: send the request again
401, 403                                               StageError: no request will be answered
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import httpx

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.formats.records import encodable

Send = Callable[[httpx.AsyncClient, str, dict[str, Any]], Awaitable[dict[str, Any]]]
"""(client, base URL, request's JSON) -> the answer's JSON; raises the errors of `post`."""


class GivenUp(Exception):
    """The failure of a request that is not sent again, with finish reason and kind of failure."""

    def __init__(self, finish_reason: str, kind: str, why: str) -> None:
        super().__init__(why)
        self.finish_reason, self.kind = finish_reason, kind


class Passing(Exception):
    """A temporary failure, with the HTTP status and the seconds to wait if the server sent them.

    ``kind`` is its kind if there is no status.
    """

    def __init__(
        self,
        why: str,
        status: int | None = None,
        retry_after: float | None = None,
        kind: str = "bad answer",
    ) -> None:
        super().__init__(why)
        self.status, self.retry_after, self.kind = status, retry_after, kind


async def post(http: httpx.AsyncClient, url: str, body: dict[str, Any]) -> dict[str, Any]:
    """Request ``body["n"]`` responses from a server, and return the answer's JSON.

    Raises:
        GivenUp: The server refuses the request.
        Passing: The failure may be temporary, or the answer is unusable.
        httpx.TransportError: The connection failed; this may be temporary too.
        StageError: The server requires another API key.
    """
    answer = await http.post(f"{url}/chat/completions", json=body)
    check_status(url, answer)
    try:
        value = answer.json()
        choices = value["choices"]
    except (ValueError, KeyError, TypeError) as error:
        raise Passing(f"an answer that is not a chat completion: {message_of(answer)}") from error
    if len(choices) != body["n"] or not all(isinstance(c, dict) for c in choices):
        raise Passing(f"{len(choices)} choices, expected {body['n']}")
    return dict(value)


def content_of(answer: Mapping[str, Any], seconds: float, url: str) -> str:
    """Return the text of a chat completion's only choice; a ``read`` function of `Asker.ask`.

    Raises:
        Passing: The choice has no message.
    """
    try:
        content = answer["choices"][0]["message"]["content"]
    except (LookupError, TypeError) as error:
        raise Passing("a choice without a message") from error
    # A server that removes the think part sends no content if the think part was never closed.
    return encodable(str(content or ""))


def check_status(url: str, answer: httpx.Response) -> None:
    """Raise the error of an answer whose status is not 200.

    Raises:
        GivenUp: The server refuses the request.
        Passing: The failure may be temporary.
        StageError: The server requires another API key.
    """
    check_key(url, answer)
    status = answer.status_code
    if status in (404, 408, 425, 429) or status >= 500:
        raise Passing(f"status {status}: {message_of(answer)}", status, _retry_after(answer))
    if status != 200:
        raise GivenUp("error", f"status {status}", f"status {status}: {message_of(answer)}")


def check_key(url: str, answer: httpx.Response) -> None:
    """Check by an answer's status that the server accepts our API key, or needs none.

    Raises:
        StageError: The server rejects the key.
    """
    if answer.status_code not in (401, 403):
        return
    shown = answer.request.headers.get("authorization", "").partition(" ")[2]
    message = message_of(answer).replace(shown, "…") if shown else message_of(answer)
    raise StageError(
        f"{url}: status {answer.status_code}: {message}. It needs another key: name the "
        f"environment variable that holds it by placement: {{api_keys: {{{url}: VARIABLE}}}} in "
        "the launch file, or by --key-variable for --server."
    )


def kind_of(failure: Exception) -> str:
    """Return a failure's kind: e.g. ``status 500``, ``timeout``, ``connection``, ``bad answer``."""
    if isinstance(failure, Passing):
        return failure.kind if failure.status is None else f"status {failure.status}"
    return "timeout" if isinstance(failure, httpx.ReadTimeout) else "connection"


def overloaded(failure: Exception) -> bool:
    """Return whether a failure means that the server has too many requests (status 429 or 503)."""
    return isinstance(failure, Passing) and failure.status in (429, 503)


def message_of(answer: httpx.Response) -> str:
    """Return the start of the answer's text, on one line."""
    return " ".join(answer.text[:300].split()) or "nothing"


def _retry_after(answer: httpx.Response) -> float | None:
    """Return the seconds in the Retry-After header; None if it is missing or has a date."""
    value = answer.headers.get("retry-after", "")
    return float(value) if value.isdigit() else None
