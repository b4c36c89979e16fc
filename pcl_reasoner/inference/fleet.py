"""The servers that answer for one model: which is asked next, and how many requests each holds.

    GET {root}/metrics   vllm:num_requests_running{engine="0",model_name="policy"} 192.0
                         vllm:num_requests_waiting{engine="0",model_name="policy"} 64.0
    -> a quarter of the samples waits: this is as many requests as it should have

What waits should wait here, not in a server's queue: there it could not go to a server that has
become idle, and its time would run out.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.inference.addresses import Addresses
from pcl_reasoner.inference.post import post
from pcl_reasoner.inference.server import POLL_SECONDS, SupervisedServer
from pcl_reasoner.inference.settings import SamplingConfig

FIRST_PAUSE = 0.5
"""Seconds that a server rests after its first failure; four times as long after each further."""
LONGEST_PAUSE = 60.0
CHECK_TIMEOUT = 10.0
"""Seconds that a server has to say what it offers."""
METRICS_SECONDS = 2.0
"""Between looks at a server's queue; a look costs vLLM some hundredths of a second."""
FIRST_LOOK_SECONDS = 0.25
"""After so long a server's queue is seen first; then at twice the time, up to METRICS_SECONDS."""
FIRST_LIMIT = 32
"""Requests at a time until its queue has been seen, for a server that tells its queue."""
WAITING_SHARE = 0.25
"""This share of a server's samples may wait, so that a place that falls free is filled at once."""

_GAUGE = re.compile(r"^vllm:num_requests_(running|waiting)(?:\{[^}]*\})? (\S+)$", re.M)


@dataclass(frozen=True)
class Keys:
    """What errors call the keys that name servers, their model and its context."""

    urls: str = "server_urls"
    model: str = "served_model"
    length: str = "max_model_len"


@dataclass
class Server:
    """One base URL, and how it does."""

    url: str
    limit: int = 1
    """Requests that it is given at a time."""
    has_queue: bool = False
    """Does it tell its queue?"""
    has_waited: bool = False
    """Has anything waited there yet? Until then its limit is doubled."""
    outstanding: int = 0
    failures: int = 0
    """In a row."""
    rests_until: float = 0.0
    """Loop time before which it is asked nothing."""
    on_trial: bool = False
    """Is one request finding out whether it is well again?"""
    api_key: str | None = field(default=None, repr=False)
    """What it wants to be shown."""
    supervised: SupervisedServer | None = None
    up: bool = True
    """False while it is being started again."""
    lives: int = 0
    """How often it was lost, for a server that is started again."""
    lost: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when this life of it has ended."""

    @property
    def given_up(self) -> bool:
        """Is it not started again?"""
        return self.supervised is not None and self.supervised.given_up is not None

    @property
    def root(self) -> str:
        """The base URL without ``/v1``."""
        return self.url.removesuffix("/v1")

    def has_room(self, now: float) -> bool:
        """May it be asked now? After a failure one request at a time finds out how it does."""
        ready = self.up and self.rests_until <= now and not (self.failures and self.on_trial)
        return ready and self.outstanding < self.limit


def connections(settings: SamplingConfig, servers: int) -> httpx.AsyncClient:
    """A client for so many requests at a time, and looks at so many servers beside them."""
    return httpx.AsyncClient(
        timeout=httpx.Timeout(settings.request_timeout, connect=CHECK_TIMEOUT, pool=None),
        limits=httpx.Limits(max_connections=settings.concurrency + 2 * servers),
        trust_env=False,  # servers are the user's own: no proxy of the environment between
    )


class Fleet:
    """The servers, and what waits for one of them.

    Args:
        urls: Base URLs that end in ``/v1``, with their keys; empty where a server is started.
        settings: ``concurrency``, ``served_model``, ``max_model_len`` and ``n`` are used.
        http: For all requests; shows each server its key, and no other one's.
        supervised: Servers that are started here.
        keys: For errors.
    """

    def __init__(
        self,
        urls: Addresses,
        settings: SamplingConfig,
        http: httpx.AsyncClient,
        supervised: Sequence[SupervisedServer] = (),
        keys: Keys = Keys(),  # noqa: B008
    ) -> None:
        self.settings, self.http, self.keys = settings, http, keys
        limit = settings.concurrency
        self.servers = [Server(url, limit, api_key=key) for url, key in urls.items()]
        self.servers += [
            Server(f"{one.root}/v1", limit, api_key=one.api_key, supervised=one)
            for one in supervised
        ]
        http.event_hooks = {"request": [self._show_key]}
        self._changed = asyncio.Event()

    async def _show_key(self, request: httpx.Request) -> None:
        """Show a server its key; of several that a URL could be of, it is the nearest one's."""
        # As httpx writes both: without a default port, in lower case.
        roots = [(str(httpx.URL(f"{one.root}/")), one.api_key) for one in self.servers]
        own = [(len(root), key) for root, key in roots if str(request.url).startswith(root)]
        key = max(own, default=(0, None), key=lambda one: one[0])[1]
        if key:
            request.headers["Authorization"] = f"Bearer {key}"

    async def open(self) -> list[dict[str, Any]]:
        """Wait for servers that are started here, and see that all are the right ones.

        Returns:
            For every server its url, engine's version and the model that it names.

        Raises:
            StageError: One does not answer, or offers another model or a shorter context.
        """
        started = [server.supervised for server in self.servers if server.supervised]
        await asyncio.gather(*[one.ready(self.http) for one in started])
        return list(await asyncio.gather(*[self._check(server) for server in self.servers]))

    async def take(self, failed_on: list[str]) -> Server:
        """Wait for the server that has the most room, of those on which a request failed least.

        A server that is being started again, which takes minutes, is not waited for while another
        is up.

        Args:
            failed_on: URLs on which the request has failed, one for each time.
        """
        while True:
            there = [server for server in self.servers if server.up] or self.servers
            fewest = min(failed_on.count(server.url) for server in there)
            wanted = [s for s in there if failed_on.count(s.url) == fewest]
            now = asyncio.get_running_loop().time()
            free = [server for server in wanted if server.has_room(now)]
            if free:
                server = min(free, key=lambda s: s.outstanding / s.limit)
                server.outstanding += 1
                server.on_trial = server.failures > 0
                return server
            self._changed.clear()
            rests = [s.rests_until - now for s in wanted if s.rests_until > now]
            try:
                await asyncio.wait_for(self._changed.wait(), min(rests, default=None))
            except TimeoutError:
                continue

    def give_back(self, server: Server) -> None:
        """A request has left a server, whatever became of it."""
        server.outstanding -= 1
        server.on_trial = False
        self._changed.set()

    def answered(self, server: Server) -> None:
        """A request was answered: the server is well."""
        server.failures = 0

    def all_fail(self, retries: int) -> bool:
        """Has every server failed more than so often in a row, with nothing answered between?"""
        there = [server for server in self.servers if not server.given_up]
        return all(server.failures > retries and server.up for server in there)

    async def ask(self, server: Server, url: str, body: dict[str, Any]) -> dict[str, Any]:
        """`post.post`, which ends when the server is lost: a cut link does not end a connection.

        Args:
            server: One that `take` gave.
            url: Its base URL then.
            body: Of the request.
        """
        asking = asyncio.ensure_future(post(self.http, url, body))
        lost = asyncio.ensure_future(server.lost.wait())
        try:
            await asyncio.wait({asking, lost}, return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                return asking.result()
            raise httpx.ReadError("the server was lost")
        finally:
            for task in (asking, lost):
                task.cancel()

    async def was_lost(self, server: Server, lives: int) -> bool:
        """Did a server that is started here end under a request?

        Its connections break first; then its processes end, which takes long where they are large.

        Args:
            server: Where the request was.
            lives: The server's, when the request was sent.
        """
        if server.supervised is None:
            return False
        while server.lives == lives:
            if await server.supervised.answers(self.http):
                return False
            await asyncio.sleep(POLL_SECONDS)
        return True

    def failed(self, server: Server, retry_after: float | None, overloaded: bool) -> None:
        """Let a server rest; requests that fail together are one failure of it.

        Args:
            server: The one that failed.
            retry_after: Seconds that it asks for.
            overloaded: It has more requests than it wants.
        """
        now = asyncio.get_running_loop().time()
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
        """Let as many workers as may be under way do the work, and look after the servers.

        Raises:
            StageError: A worker's, or a server was lost too often.
        """
        try:
            async with asyncio.TaskGroup() as group:
                keeper = group.create_task(self.keep())
                workers = range(self.settings.concurrency)
                await asyncio.wait([group.create_task(worker()) for _ in workers])
                keeper.cancel()
        except BaseExceptionGroup as several:
            raise _first(several) from None

    async def keep(self) -> None:
        """Follow the servers' queues, and start again what is lost; runs until it is cancelled.

        Raises:
            StageError: A server was lost too often.
        """
        async with asyncio.TaskGroup() as group:
            for server in self.servers:
                group.create_task(self._follow(server))
                if server.supervised is not None:
                    group.create_task(self._guard(server, server.supervised))

    async def _guard(self, server: Server, supervised: SupervisedServer) -> None:
        while True:
            if await supervised.lost(self.http):
                server.up = False
                server.lives += 1
                server.lost.set()
                self._changed.set()
                try:
                    await supervised.start_again(self.http)
                except StageError as error:
                    if all(other.given_up for other in self.servers if other is not server):
                        raise
                    supervised.given_up = str(error)
                    await asyncio.to_thread(supervised.stop)
                    return
                server.lost = asyncio.Event()
                server.url = f"{supervised.root}/v1"
                server.failures, server.rests_until, server.up = 0, 0.0, True
                self._changed.set()
            await asyncio.sleep(POLL_SECONDS)

    async def _follow(self, server: Server) -> None:
        pause = FIRST_LOOK_SECONDS
        while server.has_queue and not server.given_up:
            await asyncio.sleep(pause)
            pause = min(2 * pause, METRICS_SECONDS)
            queue = await self._queue(server)
            if queue is not None:
                self._adapt(server, *queue)

    async def _queue(self, server: Server) -> tuple[float, float] | None:
        """Samples that run and that wait, over a server's engines; None where it does not say."""
        try:
            answer = await self.http.get(f"{server.root}/metrics", timeout=CHECK_TIMEOUT)
        except httpx.HTTPError:
            return None
        found: Counter[str] = Counter()
        for name, value in _GAUGE.findall(answer.text if answer.status_code == 200 else ""):
            found[name] += float(value)  # type: ignore[assignment]
        return (found["running"], found["waiting"]) if found else None

    def _adapt(self, server: Server, running: float, waiting: float) -> None:
        """More requests while nothing waits there, fewer when more waits than should."""
        n = max(self.settings.n, 1)
        surplus = waiting - max(WAITING_SHARE * (running + waiting), n)
        server.has_waited |= waiting > 0
        if waiting == 0 and server.outstanding >= server.limit:
            more = server.limit + (max(1, server.limit // 8) if server.has_waited else server.limit)
            server.limit = min(self.settings.concurrency, more)
            self._changed.set()
        elif surplus > 0:
            server.limit = max(1, server.outstanding - int(surplus / n))

    async def _check(self, server: Server) -> dict[str, Any]:
        """See that a server answers, offers the model, and has the context that is asked for."""
        found = await self.models(server)
        if found is None:
            raise StageError(
                f"{server.url}: no answer. Start the server, or mend placement.{self.keys.urls} in "
                "the launch file, and run again: what is there is kept."
            )
        wanted, length = self.settings.served_model, self.settings.max_model_len
        keys = self.keys
        if found and wanted not in found:
            raise StageError(
                f"{server.url}: offers {', '.join(found)}, not {wanted!r}. Start it with "
                f"--served-model-name {wanted}, or set {keys.model}."
            )
        model = found.get(wanted, {})
        offered = model.get("max_model_len")
        if offered and offered < length:
            raise StageError(
                f"{server.url}: serves {offered} tokens of context, {keys.length} is {length}. "
                f"Start it with --max-model-len {length}, or set {keys.length}."
            )
        server.has_queue = await self._queue(server) is not None
        if server.has_queue:
            server.limit = min(FIRST_LIMIT, self.settings.concurrency)
        version = await self.get(server, f"{server.root}/version", lambda v: v["version"])
        return {
            "url": server.url,
            "owned_by": model.get("owned_by"),
            "version": version,
            "model": model.get("root") or wanted,
            "max_model_len": offered,
        }

    async def models(self, server: Server) -> dict[str, dict[str, Any]] | None:
        """The models a server offers; empty when it does not say, None when it is not there."""

        def by_name(value: Any) -> dict[str, dict[str, Any]]:
            return {str(model["id"]): model for model in value["data"]}

        try:
            return await self.get(server, f"{server.url}/models", by_name) or {}
        except httpx.HTTPError:
            return None

    async def get(self, server: Server, url: str, read: Callable[[Any], Any]) -> Any:
        """What a page says, as ``read`` takes it; None where there is no such page.

        Raises:
            httpx.HTTPError: There is no server.
        """
        answer = await self.http.get(url, timeout=CHECK_TIMEOUT)
        try:
            return read(answer.json()) if answer.status_code == 200 else None
        except (ValueError, KeyError, TypeError):
            return None


def _first(several: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first exception of a group that may hold groups."""
    first = several.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
