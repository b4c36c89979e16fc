"""The servers of one model: chooses a server for each request, and limits requests per server.

Requests should wait in this process, not in a server's queue: from a queue they could not move to a
server that becomes idle, and the time in the queue counts towards their timeout.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import httpx

from pcl_reasoner.answers.chat import Send, Sent
from pcl_reasoner.answers.pages import ModelCard, Models, Version, read_page
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.inference.addresses import Addresses
from pcl_reasoner.inference.fleet_keeper import FleetKeeper
from pcl_reasoner.inference.fleet_server import CHECK_TIMEOUT, Server, Weights
from pcl_reasoner.inference.meant import Meant, check_root, check_started
from pcl_reasoner.inference.server import POLL_SECONDS, SupervisedServer
from pcl_reasoner.inference.settings import SamplingConfig

FIRST_PAUSE = 0.5
"""Seconds without requests for a server that has failed; 4 times as long per further failure."""
LONGEST_PAUSE = 60.0
FIRST_LIMIT = 32
"""First limit of requests in flight on a server that reports its queue, until the queue is read."""


@dataclass(frozen=True)
class Keys:
    """Names of settings in error messages: the server URLs, the model and the context length."""

    urls: str = "server_urls"
    model: str = "served_model"
    length: str = "max_model_len"


def connections(settings: SamplingConfig, servers: int) -> httpx.AsyncClient:
    """Return a client with ``concurrency`` connections, and two more per server for checks."""
    return httpx.AsyncClient(
        timeout=httpx.Timeout(settings.answer_seconds(), connect=CHECK_TIMEOUT, pool=None),
        limits=httpx.Limits(max_connections=settings.concurrency + 2 * servers),
        trust_env=False,  # the servers are the user's own: skip the environment's proxies
    )


class Fleet:
    """The servers of one model, and the requests that wait for one of them.

    Args:
        urls: Base URLs that end in ``/v1``, with the keys of these servers; may be empty.
        settings: Uses ``concurrency``, ``served_model``, ``max_model_len`` and ``n``.
        http: Client for all requests; each server is sent only its own key.
        supervised: Servers that this process starts.
        keys: Names of the settings, for error messages.
        weights: What every server must have before it is asked; None: what it has.
        model: The model with which servers at ``urls`` must have been started; None: any.
    """

    def __init__(
        self,
        urls: Addresses,
        settings: SamplingConfig,
        http: httpx.AsyncClient,
        supervised: Sequence[SupervisedServer] = (),
        keys: Keys = Keys(),  # noqa: B008
        weights: Weights | None = None,
        model: Meant | None = None,
    ) -> None:
        self.settings, self.http, self.keys, self.model = settings, http, keys, model
        limit = settings.concurrency
        self.servers = [Server(url, limit, api_key=key) for url, key in urls.items()]
        self.servers += [
            Server(f"{one.root}/v1", limit, api_key=one.api_key, supervised=one)
            for one in supervised
        ]
        http.event_hooks = {"request": [self._show_key]}
        self._changed = asyncio.Event()
        self.keeper = FleetKeeper(self.servers, settings, http, self._changed, weights)

    async def _show_key(self, request: httpx.Request) -> None:
        """Add the server's key to a request; of several URLs that match, the longest is used."""
        # Compare URLs as httpx writes them: lower case, no default port.
        roots = [(str(httpx.URL(f"{one.root}/")), one.api_key) for one in self.servers]
        matches = [(root, key) for root, key in roots if str(request.url).startswith(root)]
        _, key = max(matches, default=("", None), key=lambda match: len(match[0]))
        if key:
            request.headers["Authorization"] = f"Bearer {key}"

    async def open(self) -> list[dict[str, Any]]:
        """Wait for the servers that this process starts, check all, and give them the weights.

        Returns:
            For each server the facts that it reports: url, owned_by, version, model, max_model_len.

        Raises:
            StageError: A server does not answer, serves another model or a shorter context, or
                cannot be given the weights.
        """
        await self.keeper.wait()
        checked = list(self.servers)
        facts = await asyncio.gather(*[self._check(server) for server in checked])
        await self.keeper.give_all()
        # A server may have got another port: giving it the weights may have restarted it.
        return [
            {**found, "url": server.url}
            for server, found in zip(checked, facts, strict=True)
            if not server.given_up
        ]

    async def take(self, failed_on: list[str]) -> Server:
        """Wait until a server can take a request, and return the server.

        Only servers on which this request has failed least often are used; the least loaded one is
        returned. A server that is being restarted is skipped while another one is up.

        Args:
            failed_on: URLs on which the request has failed, once per failure.
        """
        while True:
            asked = [server for server in self.servers if not server.given_up] or self.servers
            servers = [server for server in asked if server.up] or asked
            fewest = min(failed_on.count(server.url) for server in servers)
            wanted = [s for s in servers if failed_on.count(s.url) == fewest]
            now = asyncio.get_running_loop().time()
            free = [server for server in wanted if server.can_take(now)]
            if free:
                server = min(free, key=lambda s: s.outstanding / s.limit)
                server.outstanding += 1
                server.on_trial = server.failures > 0
                return server
            self._changed.clear()
            rests = [s.rests_until - now for s in wanted if s.rests_until > now]
            # Not asyncio.wait_for: in Python 3.11 it ignores a cancellation that comes together
            # with the event, and the stage would then wait here for ever.
            with suppress(TimeoutError):
                async with asyncio.timeout(min(rests, default=None)):
                    await self._changed.wait()

    def give_back(self, server: Server) -> None:
        """Record that a request has left a server, whether it succeeded or failed."""
        server.outstanding -= 1
        server.on_trial = False
        self._changed.set()

    def all_fail(self, retries: int) -> bool:
        """Return whether every server has failed more than ``retries`` times in a row.

        Servers that are given up are ignored. While one is being restarted, the result is False.
        """
        servers = [server for server in self.servers if not server.given_up]
        return all(server.failures > retries and server.up for server in servers)

    async def ask(self, server: Server, url: str, body: dict[str, Any], send: Send[Sent]) -> Sent:
        """Send a request, but stop waiting when the server is lost.

        A broken network link does not close a connection, so ``send`` alone would wait longer.

        Args:
            server: The server that `take` returned.
            url: The server's base URL when it was taken.
            body: The request's JSON.
            send: Sends the request: `post.post`, or one for another page.
        """
        asking = asyncio.ensure_future(self._answer(server, url, body, send))
        lost = asyncio.ensure_future(server.lost.wait())
        try:
            await asyncio.wait({asking, lost}, return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                return asking.result()
            raise httpx.ReadError("the server was lost")
        finally:
            for task in (asking, lost):
                task.cancel()

    async def _answer(
        self, server: Server, url: str, body: dict[str, Any], send: Send[Sent]
    ) -> Sent:
        """Send a request to a server that has the weights before and after it."""
        await self.keeper.give(server)
        answer = await send(self.http, url, body)
        await self.keeper.check_after(server)
        return answer

    async def was_lost(self, server: Server, lost: asyncio.Event) -> bool:
        """Return whether the server of a failed request was lost; wait until that is known.

        When a server is lost, its connections break first; its processes may end much later.

        Args:
            server: The server that had the request.
            lost: The value of ``server.lost`` when the request was sent.
        """
        if server.supervised is None:
            return lost.is_set()  # it hung, and is asked no more
        while not lost.is_set():
            if await server.supervised.answers(self.http):
                return False
            await asyncio.sleep(POLL_SECONDS)
        return True

    def failed(self, server: Server, retry_after: float | None, overloaded: bool) -> None:
        """Send a server no requests for a while; failures during that time are not counted.

        If this process did not start it, it may have been restarted, with other weights.

        Args:
            server: The server that failed.
            retry_after: Seconds that the server asks to wait; None if it does not say.
            overloaded: True to also reduce its limit to half of its requests in flight.
        """
        now = asyncio.get_running_loop().time()
        server.confirmed = server.confirmed and server.supervised is not None
        if server.rests_until > now:
            return
        pause = min(FIRST_PAUSE * 4.0 ** min(server.failures, 9), LONGEST_PAUSE)
        if retry_after is not None:
            pause = min(retry_after, LONGEST_PAUSE)
        server.failures += 1
        server.rests_until = now + pause
        if overloaded:
            server.limit = max(1, server.outstanding // 2)

    async def run(self, worker: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run ``concurrency`` coroutines of ``worker``, and watch the servers meanwhile.

        Raises:
            StageError: A coroutine raised this error, or a server was lost too often.
        """
        try:
            async with asyncio.TaskGroup() as group:
                keeper, servers = self.keeper, self.servers
                watchers = [group.create_task(keeper.follow(server)) for server in servers]
                watchers += [group.create_task(keeper.guard(server)) for server in servers]
                workers = range(self.settings.concurrency)
                await asyncio.wait([group.create_task(worker()) for _ in workers])
                for watcher in watchers:
                    watcher.cancel()
        except BaseExceptionGroup as errors:
            first: BaseException = errors
            while isinstance(first, BaseExceptionGroup):
                first = first.exceptions[0]
            raise first from None

    def warn_of_given_up(self, warn: Callable[[str], None]) -> None:
        """Tell of each running server that was given up, after the last answer."""
        for server in self.servers:
            if server.unusable:
                warn(f"a server was given up while others continued: {server.unusable}")

    async def _check(self, server: Server) -> dict[str, Any]:
        """Check that a server answers, offers the model, and has the required context length."""
        wanted, length = self.settings.served_model, self.settings.max_model_len
        keys = self.keys
        found = await self.models(server)
        if found is None:
            raise StageError(
                f"{server.url}: no answer. Start the server, or correct placement.{keys.urls} in "
                "the launch file, and run again: earlier results are kept."
            )
        if found and wanted not in found:
            raise StageError(
                f"{server.url}: offers {', '.join(found)}, not {wanted!r}. Start it with "
                f"--served-model-name {wanted}, or set {keys.model}."
            )
        model = found.get(wanted, ModelCard(id=wanted))
        offered = model.max_model_len
        if offered and offered < length:
            raise StageError(
                f"{server.url}: serves {offered} tokens of context, {keys.length} is {length}. "
                f"Start it with --max-model-len {length}, or set {keys.length}."
            )
        server.has_queue = await server.load(self.http) is not None
        if server.has_queue:
            server.limit = min(FIRST_LIMIT, self.settings.concurrency)
        if server.supervised is not None:
            check_started(server.supervised, found)
        elif self.model is not None:
            check_root(server.url, model.root, self.model)
        version = await read_page(self.http, "GET", f"{server.root}/version", Version)
        own = server.supervised
        return {
            "url": server.url,
            "owned_by": model.owned_by,
            "version": version.version if version else None,
            "model": model.root or wanted,
            "max_model_len": offered,
            **({"start_seconds": own.start_seconds} if own else {}),
        }

    async def models(self, server: Server) -> dict[str, ModelCard] | None:
        """Return a server's models by name; empty if it lists none, None if it does not answer."""
        try:
            page = await read_page(self.http, "GET", f"{server.url}/models", Models)
        except httpx.TransportError:
            return None
        return {model.id: model for model in page.data} if page else {}
