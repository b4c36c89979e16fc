"""Keeps the servers of a fleet running: restarts, weights, and limits of requests in flight.

A server's /health may answer although its engine hangs. Therefore its tokens are watched, too.
"""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

import httpx

from pcl_reasoner.answers.failures import Passing
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.inference.fleet_server import Server, Weights
from pcl_reasoner.inference.server import POLL_SECONDS, SupervisedServer
from pcl_reasoner.inference.settings import SamplingConfig

METRICS_SECONDS = 2.0
"""Seconds between reads of a server's queue; a read costs vLLM some hundredths of a second."""
FIRST_METRICS_SECONDS = 0.25
"""Seconds until the first read of a server's queue; then doubled up to METRICS_SECONDS."""
RETRY_SECONDS = 0.5
"""Seconds until a server gets the weights again; 4 times as long per further failure."""


class FleetKeeper:
    """Keeps the servers of one fleet running.

    Args:
        servers: The fleet's servers; those that are given up before the first request are removed.
        settings: Uses ``n``, ``concurrency`` and ``retries``.
        http: The fleet's client.
        changed: Set when a server may take requests again, or takes more of them.
        weights: What the servers must have before they are asked; None: what they have.
    """

    def __init__(
        self,
        servers: list[Server],
        settings: SamplingConfig,
        http: httpx.AsyncClient,
        changed: asyncio.Event,
        weights: Weights | None = None,
    ) -> None:
        self.servers, self.settings, self.http = servers, settings, http
        self.changed, self.weights = changed, weights

    async def wait(self) -> None:
        """Wait until the servers that this process started answer.

        A server that has answered before, and has ended or hangs since, is restarted.

        Raises:
            StageError: A server does not start, or the last one cannot be restarted.
        """
        await asyncio.gather(*[self._wait(server) for server in self.servers])
        self._remove_given_up()

    async def _wait(self, server: Server) -> None:
        supervised = server.supervised
        if supervised is None or supervised.given_up:
            return
        try:
            await supervised.ready(self.http)
        except StageError:
            if not supervised.answered:
                raise
            await self._recover(server, supervised)

    def _remove_given_up(self) -> None:
        self.servers[:] = [server for server in self.servers if not server.given_up]

    async def give_all(self) -> None:
        """Give all servers the weights, and wait until they are confirmed.

        A server that this process started is restarted if it cannot take them.

        Raises:
            StageError: Another server cannot take them after ``retries`` repeats.
        """
        await asyncio.gather(*[self._give_patiently(server) for server in self.servers])
        self._remove_given_up()

    async def _give_patiently(self, server: Server) -> None:
        repeats = self.settings.retries
        for attempt in range(repeats + 1):
            try:
                await self.give(server)
                return
            except (httpx.TransportError, Passing) as failure:
                if server.supervised is not None:
                    await self._recover(server, server.supervised)
                    return
                if attempt == repeats:
                    raise _cannot_take(server, failure, repeats) from failure
            await asyncio.sleep(RETRY_SECONDS * 4**attempt)

    async def give(self, server: Server) -> None:
        """Give a server the weights, unless it is known to have them.

        Raises:
            Passing: The failure may be temporary.
            httpx.TransportError: The connection failed; this may be temporary, too.
            StageError: The server cannot take them, or failed ``retries`` times in a row.
        """
        if self.weights is None or server.confirmed:
            return
        async with server.giving:
            if server.confirmed:
                return
            try:
                await self._unless_lost(server, self.weights.give(self.http, server))
            except Passing as failure:
                self._check_failures(server, failure)
                raise
            server.confirmed = True

    async def _unless_lost(self, server: Server, giving: Coroutine[Any, Any, None]) -> None:
        """Wait for ``giving`` unless the server is lost: vLLM never answers if its engine ends."""
        task = asyncio.ensure_future(giving)
        try:
            while not (await asyncio.wait({task}, timeout=POLL_SECONDS))[0]:
                if server.supervised is not None and await server.supervised.lost(self.http):
                    raise httpx.ReadError("the server was lost")
            task.result()
        finally:
            task.cancel()

    async def check_after(self, server: Server) -> None:
        """Check after an answer that the server has had the weights since `give`.

        Raises:
            Passing: It has others now, or it was restarted: the answer must not be used.
            httpx.TransportError: The connection failed, so nothing is known.
            StageError: This has happened ``retries`` times in a row.
        """
        if self.weights is None:
            return
        try:
            await self.weights.check_after(self.http, server)
        except Passing as failure:
            self._check_failures(server, failure)
            raise

    def _check_failures(self, server: Server, failure: Passing) -> None:
        if server.supervised is None and server.failures >= self.settings.retries:
            raise _cannot_take(server, failure, server.failures) from failure

    async def guard(self, server: Server) -> None:
        """Restart a server that this process started whenever it is lost, until it is given up."""
        while (supervised := server.supervised) is not None:
            if await supervised.lost(self.http):
                server.up = False
                server.lost.set()
                self.changed.set()
                if not await self._recover(server, supervised):
                    return
                server.lost = asyncio.Event()
                server.rests_until, server.up = 0.0, True
                self.changed.set()
            await asyncio.sleep(POLL_SECONDS)

    async def _recover(self, server: Server, supervised: SupervisedServer) -> bool:
        """Restart a lost server until it has the weights.

        Returns:
            True if it runs; False if it is given up and others run.

        Raises:
            StageError: The last server is given up, or its weights are not those of others.
        """
        while True:
            server.confirmed = False
            try:
                await supervised.restart(self.http)
            except StageError as error:
                if all(other.given_up for other in self.servers if other is not server):
                    raise
                supervised.given_up = str(error)
                await asyncio.to_thread(supervised.stop)
                return False
            server.url, server.failures = f"{supervised.root}/v1", 0
            with suppress(httpx.TransportError, Passing):
                await self.give(server)
                return True

    async def follow(self, server: Server) -> None:
        """Adapt a server's limit to its queue, if it reports one, and see whether it hangs.

        Raises:
            StageError: The last server hangs, and this process did not start it.
        """
        pause = FIRST_METRICS_SECONDS
        while server.has_queue and not server.given_up:
            await asyncio.sleep(pause)
            pause = min(2 * pause, METRICS_SECONDS)
            load = await server.load(self.http)
            if load is None:
                continue
            if server.adapt(self.settings, load.running, load.waiting):
                self.changed.set()
            has_weights = self.weights is None or server.confirmed
            now = asyncio.get_running_loop().time()
            if server.stalled_for(load, has_weights, now) >= server.stall_seconds:
                self._end_stall(server)

    def _end_stall(self, server: Server) -> None:
        """Have a server that hangs restarted by `guard`; ask one of somebody else no more."""
        server.moved_at = asyncio.get_running_loop().time()
        if server.supervised is not None:
            server.supervised.stall()
            return
        server.lost.set()
        self.give_up(
            server,
            f"{server.url}: hangs: it has read and made no token for {server.stall_seconds:g} s, "
            f"with {server.outstanding} requests in flight.",
            "Restart it, and run again: earlier results are kept.",
        )

    def give_up(self, server: Server, why: str, remedy: str) -> None:
        """Ask a server no more.

        Raises:
            StageError: It is the last one.
        """
        server.unusable = why
        self.changed.set()
        if all(one.given_up for one in self.servers):
            raise StageError(f"{why} {remedy}")


def _cannot_take(server: Server, failure: Exception, repeats: int) -> StageError:
    why = str(failure) or type(failure).__name__
    return StageError(
        f"{server.url}: cannot be given the policy's weights, or be compared with their proof: "
        f"{why}, after {repeats} retries. "
        "Restart the server, and run again: earlier results are kept."
    )
