"""Sends one request to a group of servers (a fleet) until it is answered or given up.

A failed request is sent again, to another server if there is one. The server on which it failed
gets no requests for some seconds. After ``retries + 1`` failures, the request is given up if its
last server is healthy; otherwise the stage stops.
"""

import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import httpx

from pcl_reasoner.answers.chat import Send, Sent
from pcl_reasoner.answers.failures import GivenUp, Passing, kind_of, overloaded
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.inference.fleet import Fleet
from pcl_reasoner.inference.fleet_server import Server

Read = TypeVar("Read")

FIRST_FAILURES = 4
"""A server whose first answers fail this often, with pauses between, is asked no more: 11 s."""

OVERLOAD_PATIENCE = 4
"""If every server has failed ``retries + 1`` times in a row, the stage stops, unless the last
server is healthy. After an overload (status 429 or 503), this factor multiplies ``retries + 1``."""


class Asker(Generic[Sent]):
    """Sends requests to a fleet's servers.

    Args:
        fleet: The servers; ``settings.retries`` is the number of repeats per request.
        retried: Counts failed requests by kind of failure.
        kept: Returns the end of an error message, e.g. ``12 of 80 responses are kept``.
        send: Sends one request to one server: `post.post`, or one for another page.
    """

    def __init__(
        self,
        fleet: Fleet,
        retried: Counter[str],
        kept: Callable[[], str],
        send: Send[Sent],
    ) -> None:
        self.fleet, self.retried, self.kept, self.send = fleet, retried, kept, send

    async def ask(self, body: dict[str, Any], read: Callable[[Sent, float, str], Read]) -> Read:
        """Send a request until it is answered or given up, and return the result of ``read``.

        Args:
            body: The request's JSON.
            read: (answer, seconds, server's URL) -> result; raises Passing if the answer is
                unusable, so that the request is sent again.

        Raises:
            GivenUp: A server refuses the request; or the request failed ``retries + 1`` times, and
                the server of the last failure is healthy.
            StageError: The servers no longer answer, are overloaded or require another key.
        """
        retries = self.fleet.settings.retries
        failed_on: list[str] = []
        while True:
            server = await self.fleet.take(failed_on)
            url, lost, sent = server.url, server.lost, time.monotonic()
            try:
                answer = await self.fleet.ask(server, url, body, self.send)
                result = read(answer, time.monotonic() - sent, url)
                server.failures, server.useful = 0, True
                return result
            except (httpx.TransportError, Passing) as failure:
                last: Exception = failure
                self._note(server, failure)
            finally:
                self.fleet.give_back(server)
            if await self.fleet.was_lost(server, lost):
                continue  # the server was lost; this is no failure of the request
            failed_on.append(url)
            if len(failed_on) > retries:
                raise await self._verdict(server, last)
            patience = OVERLOAD_PATIENCE if overloaded(last) else 1
            if self.fleet.all_fail(patience * (retries + 1) - 1):
                verdict = await self._verdict(server, last)
                if isinstance(verdict, StageError):
                    raise verdict

    def _note(self, server: Server, failure: Exception) -> None:
        """Count a failure by its kind, and pause the server unless its answer is only late."""
        self.retried[kind_of(failure)] += 1
        if isinstance(failure, httpx.ReadTimeout):
            return  # one slow answer does not mean that the server is unhealthy
        retry_after = failure.retry_after if isinstance(failure, Passing) else None
        self.fleet.failed(server, retry_after, overloaded(failure))
        if _is_answer(failure) and not server.useful and server.failures >= FIRST_FAILURES:
            self.fleet.keeper.give_up(
                server,
                f"{server.url}: none of its first answers could be used. The last: {failure}.",
                f"Correct the server or its URL, and run again: {self.kept()}.",
            )

    async def _verdict(self, server: Server, last: Exception) -> Exception:
        """Return the final error: GivenUp if the server is healthy, else StageError."""
        why = str(last) or type(last).__name__
        busy = overloaded(last)
        settings = self.fleet.settings
        models = await self.fleet.models(server)
        offered = models is not None and (not models or settings.served_model in models)
        if not busy and offered:
            reason = "timeout" if isinstance(last, httpx.TimeoutException) else "error"
            return GivenUp(reason, kind_of(last), why)
        return StageError(
            f"{server.url}: {why}, after {settings.retries} retries. "
            f"{'Lower concurrency' if busy else 'Restart the server'} and run again: {self.kept()}."
        )


def _is_answer(failure: Exception) -> bool:
    """Whether a server answered, although it is of no use: a proxy, or another program.

    A connection that is dropped, or broken in the middle of an answer, counts; one that is refused
    does not, because the server may be starting.
    """
    if isinstance(failure, Passing):
        return not overloaded(failure)
    return isinstance(failure, httpx.RemoteProtocolError | httpx.ReadError)
