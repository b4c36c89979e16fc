"""Send one request to a fleet's servers until it is answered or given up.

A request that fails goes to another server if there is one, and the server that failed rests.
A request that fails repeatedly is itself at fault if its server is healthy; otherwise the servers
are at fault.
"""

import time
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

import httpx

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.inference.fleet import Fleet, Server
from pcl_reasoner.inference.post import GivenUp, Passing, kind_of, overloaded

Read = TypeVar("Read")

OVERLOAD_PATIENCE = 4
"""Factor on the failures in a row (of every server) that stop the stage, if they are overloaded."""


class Asker:
    """Sends requests to a fleet's servers.

    Args:
        fleet: The servers; ``settings.retries`` is the number of repeats per request.
        retried: Counts failed requests by kind.
        kept: Describes what is kept when the stage stops, e.g. ``12 of 80 responses are kept``.
    """

    def __init__(self, fleet: Fleet, retried: Counter[str], kept: Callable[[], str]) -> None:
        self.fleet, self.retried, self.kept = fleet, retried, kept

    async def ask(
        self, body: dict[str, Any], read: Callable[[dict[str, Any], float, str], Read]
    ) -> Read:
        """Send a request until it is answered or has failed for good.

        Args:
            body: The request's JSON.
            read: Converts an answer, its seconds and the server's URL into the result; raises
                Passing where the answer is unusable.

        Raises:
            GivenUp: A server refuses it; or it failed ``retries + 1`` times, while the last server
                that failed is healthy.
            StageError: The servers do not answer any more, are overloaded or want another key.
        """
        retries = self.fleet.settings.retries
        failed_on: list[str] = []
        while True:
            server = await self.fleet.take(failed_on)
            url, times_lost, sent = server.url, server.times_lost, time.monotonic()
            try:
                answer = await self.fleet.ask(server, url, body)
                result = read(answer, time.monotonic() - sent, url)
                server.failures = 0
                return result
            except (httpx.TransportError, Passing) as failure:
                last: Exception = failure
                self._note(server, failure)
            finally:
                self.fleet.give_back(server)
            if await self.fleet.was_lost(server, times_lost):
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
        """Count a failure by its kind, and let the server rest."""
        self.retried[kind_of(failure)] += 1
        if isinstance(failure, httpx.ReadTimeout):
            return  # one slow answer does not mean that the server is unhealthy
        retry_after = failure.retry_after if isinstance(failure, Passing) else None
        self.fleet.failed(server, retry_after, overloaded(failure))

    async def _verdict(self, server: Server, last: Exception) -> Exception:
        """The final error: GivenUp if the server is healthy, else StageError."""
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
