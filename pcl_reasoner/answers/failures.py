"""Classifies the failures of a request to a server as exceptions.

404, 408, 425, 429, 5xx, an unusable answer            Passing: send the request again
below 400 without being 200, e.g. a redirect           Passing: a proxy answers, not the server
401, 403                                               StageError: no request will be answered
400 and all others                                     GivenUp: the server refuses the request
"""

import httpx

from pcl_reasoner.core.errors import StageError

SHOWN_BYTES = 200
"""Bytes of an unusable answer that a message shows."""


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


def check_status(url: str, answer: httpx.Response) -> None:
    """Raise the error of an answer whose status is not 200.

    Raises:
        GivenUp: The server refuses the request.
        Passing: The failure may be temporary.
        StageError: The server requires another API key.
    """
    check_key(url, answer)
    status = answer.status_code
    if status == 200:
        return
    if status in (404, 408, 425, 429) or not 400 <= status < 500:
        raise Passing(f"status {status}: {message_of(answer)}", status, _retry_after(answer))
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
    start = answer.content[:SHOWN_BYTES].decode("utf-8", "replace")
    return " ".join(start.split()) or "nothing"


def _retry_after(answer: httpx.Response) -> float | None:
    """Return the seconds in the Retry-After header; None if it is missing or has a date."""
    value = answer.headers.get("retry-after", "")
    # str.isdigit is also true for "²", which is no number.
    return float(value) if value.isascii() and value.isdigit() else None
