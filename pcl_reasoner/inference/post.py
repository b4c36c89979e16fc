"""One chat completion asked of one server, and what its failures mean.

POST {base}/chat/completions -> 200 {"choices": […]}   the answer
400                                                    GivenUp: it will never be answered
429, 503 and other 5xx, 404, an answer cut off         Passing: ask again
401, 403                                               StageError: nothing will be answered
"""

from __future__ import annotations

from typing import Any

import httpx

from pcl_reasoner.core.errors import StageError


class GivenUp(Exception):
    """A request that will not be answered: its finish reason, and what kind of failure it was."""

    def __init__(self, finish_reason: str, kind: str, why: str) -> None:
        super().__init__(why)
        self.finish_reason, self.kind = finish_reason, kind


class Passing(Exception):
    """A failure that may pass: the status where there is one, and how long to wait."""

    def __init__(
        self, why: str, status: int | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(why)
        self.status = status
        self.retry_after = retry_after


async def post(http: httpx.AsyncClient, url: str, body: dict[str, Any]) -> dict[str, Any]:
    """Ask a server for ``body["n"]`` responses.

    Raises:
        GivenUp: The server refuses the request.
        Passing: It failed otherwise.
        httpx.TransportError: The connection failed; that may pass too.
        StageError: It wants another key.
    """
    answer = await http.post(f"{url}/chat/completions", json=body)
    check_key(url, answer)
    status = answer.status_code
    if status in (404, 408, 425, 429) or status >= 500:
        raise Passing(f"status {status}: {_said(answer)}", status, _retry_after(answer))
    if status != 200:
        raise GivenUp("error", f"status {status}", f"status {status}: {_said(answer)}")
    try:
        value = answer.json()
        choices = value["choices"]
    except (ValueError, KeyError, TypeError) as error:
        raise Passing(f"an answer that is not a chat completion: {_said(answer)}") from error
    if len(choices) != body["n"] or not all(isinstance(c, dict) for c in choices):
        raise Passing(f"{len(choices)} choices where {body['n']} were asked for")
    return dict(value)


def check_key(url: str, answer: httpx.Response) -> None:
    """See that a server takes the key that it was shown, or wants none.

    Raises:
        StageError: It does not.
    """
    if answer.status_code not in (401, 403):
        return
    shown = answer.request.headers.get("authorization", "").partition(" ")[2]
    said = _said(answer).replace(shown, "…") if shown else _said(answer)
    raise StageError(
        f"{url}: status {answer.status_code}: {said}. It wants another key: name the environment "
        f"variable that holds it by placement: {{api_keys: {{{url}: VARIABLE}}}} in the launch "
        "file, or by --key-variable for --server."
    )


def kind_of(failure: Exception) -> str:
    """``status 500``, ``timeout``, ``connection``, ``bad answer``: for counting."""
    if isinstance(failure, Passing):
        return "bad answer" if failure.status is None else f"status {failure.status}"
    return "timeout" if isinstance(failure, httpx.ReadTimeout) else "connection"


def overloaded(failure: Exception) -> bool:
    """Has the server more requests than it wants?"""
    return isinstance(failure, Passing) and failure.status in (429, 503)


def _said(answer: httpx.Response) -> str:
    """The start of what a server said, on one line."""
    return " ".join(answer.text[:300].split()) or "nothing"


def _retry_after(answer: httpx.Response) -> float | None:
    """Seconds of a Retry-After header; a date there is not read."""
    value = answer.headers.get("retry-after", "")
    return float(value) if value.isdigit() else None
