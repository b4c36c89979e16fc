"""The servers of one model: chooses a server for each request, and limits requests per server.

    GET {root}/metrics   vllm:num_requests_running{engine="0",model_name="policy"} 192.0
                         vllm:num_requests_waiting{engine="0",model_name="policy"} 64.0
    -> a quarter of the server's samples waits (WAITING_SHARE): its limit stays as it is

Requests should wait in this process, not in a server's queue: from a queue they could not move to a
server that becomes idle, and the time in the queue counts towards their timeout.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httpx

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.inference.addresses import Addresses
from pcl_reasoner.inference.post import Send, post
from pcl_reasoner.inference.server import POLL_SECONDS, SupervisedServer
from pcl_reasoner.inference.settings import SamplingConfig

FIRST_PAUSE = 0.5
"""Seconds without requests for a server that has failed; 4 times as long per further failure."""
LONGEST_PAUSE = 60.0
CHECK_TIMEOUT = 10.0
"""Seconds to wait for a connection, and for an answer about a server's models or queue."""
METRICS_SECONDS = 2.0
"""Seconds between reads of a server's queue; a read costs vLLM some hundredths of a second."""
FIRST_METRICS_SECONDS = 0.25
"""Seconds until the first read of a server's queue; then doubled up to METRICS_SECONDS."""
FIRST_LIMIT = 32
"""First limit of requests in flight on a server that reports its queue, until the queue is read."""
WAITING_SHARE = 0.25
"""Share of a server's samples that may wait, so that a slot that becomes free is filled at once."""

_GAUGE = re.compile(r"^vllm:num_requests_(running|waiting)(?:\{[^}]*\})? (\S+)$", re.M)


@dataclass(frozen=True)
class Keys:
    """Names of settings in error messages: the server URLs, the model and the context length."""

    urls: str = "server_urls"
    model: str = "served_model"
    length: str = "max_model_len"


@dataclass
class Server:
    """A server and its state."""

    url: str
    limit: int = 1
    """Maximum requests in flight on it."""
    has_queue: bool = False
    """True if the server reports its queue at /metrics."""
    has_waited: bool = False
    """True if any sample has waited there. Until then, a limit that is reached is doubled."""
    outstanding: int = 0
    failures: int = 0
    """Failures in a row."""
    rests_until: float = 0.0
    """Event-loop time until which it gets no requests."""
    on_trial: bool = False
    """True while a single request tests whether the server has recovered."""
    api_key: str | None = field(default=None, repr=False)
    """The API key that it requires; None or empty if it requires none."""
    supervised: SupervisedServer | None = None
    up: bool = True
    """False while it is being restarted."""
    lost: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the current server process is lost; a restart creates a new event."""

    @property
    def given_up(self) -> bool:
        """True if the server was lost and will not be restarted."""
        return self.supervised is not None and self.supervised.given_up is not None

    @property
    def root(self) -> str:
        """The base URL without ``/v1``."""
        return self.url.removesuffix("/v1")

    def can_take(self, now: float) -> bool:
        """Return whether it can take a request now. After a failure it gets one at a time."""
        ready = self.up and self.rests_until <= now and not (self.failures and self.on_trial)
        return ready and self.outstanding < self.limit


def connections(settings: SamplingConfig, servers: int) -> httpx.AsyncClient:
    """Return a client with ``concurrency`` connections, and two more per server for checks."""
    return httpx.AsyncClient(
        timeout=httpx.Timeout(settings.request_timeout, connect=CHECK_TIMEOUT, pool=None),
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
        """Add the server's key to a request; of several URLs that match, the longest is used."""
        # Compare URLs as httpx writes them: lower case, no default port.
        roots = [(str(httpx.URL(f"{one.root}/")), one.api_key) for one in self.servers]
        matches = [(root, key) for root, key in roots if str(request.url).startswith(root)]
        _, key = max(matches, default=("", None), key=lambda match: len(match[0]))
        if key:
            request.headers["Authorization"] = f"Bearer {key}"

    async def open(self) -> list[dict[str, Any]]:
        """Wait for the servers that this process starts, and check model and context of all.

        Returns:
            For each server the facts that it reports: url, owned_by, version, model, max_model_len.

        Raises:
            StageError: A server does not answer, or offers another model or a shorter context.
        """
        started = [server.supervised for server in self.servers if server.supervised]
        await asyncio.gather(*[one.ready(self.http) for one in started])
        return list(await asyncio.gather(*[self._check(server) for server in self.servers]))

    async def take(self, failed_on: list[str]) -> Server:
        """Wait until a server can take a request, and return the server.

        Only servers on which this request has failed least often are used; the least loaded one is
        returned. A server that is being restarted is skipped while another one is up.

        Args:
            failed_on: URLs on which the request has failed, once per failure.
        """
        while True:
            servers = [server for server in self.servers if server.up] or self.servers
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

    async def ask(
        self, server: Server, url: str, body: dict[str, Any], send: Send = post
    ) -> dict[str, Any]:
        """Send a request, but stop waiting when the server is lost.

        A broken network link does not close a connection, so ``send`` alone would wait longer.

        Args:
            server: The server that `take` returned.
            url: The server's base URL when it was taken.
            body: The request's JSON.
            send: Sends the request: `post.post` or `classify.classify`.
        """
        asking = asyncio.ensure_future(send(self.http, url, body))
        lost = asyncio.ensure_future(server.lost.wait())
        try:
            await asyncio.wait({asking, lost}, return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                return asking.result()
            raise httpx.ReadError("the server was lost")
        finally:
            for task in (asking, lost):
                task.cancel()

    async def was_lost(self, server: Server, lost: asyncio.Event) -> bool:
        """Return whether the server of a failed request was lost; wait until that is known.

        When a server is lost, its connections break first; its processes may end much later.

        Args:
            server: The server that had the request.
            lost: The value of ``server.lost`` when the request was sent.
        """
        if server.supervised is None:
            return False
        while not lost.is_set():
            if await server.supervised.answers(self.http):
                return False
            await asyncio.sleep(POLL_SECONDS)
        return True

    def failed(self, server: Server, retry_after: float | None, overloaded: bool) -> None:
        """Send a server no requests for a while; failures during that time are not counted.

        Args:
            server: The server that failed.
            retry_after: Seconds that the server asks to wait; None if it does not say.
            overloaded: True to also reduce its limit to half of its requests in flight.
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
        """Run ``concurrency`` coroutines of ``worker``, and watch the servers meanwhile.

        Raises:
            StageError: A coroutine raised this error, or a server was lost too often.
        """
        try:
            async with asyncio.TaskGroup() as group:
                watchers = [group.create_task(self._follow(server)) for server in self.servers]
                watchers += [group.create_task(self._guard(server)) for server in self.servers]
                workers = range(self.settings.concurrency)
                await asyncio.wait([group.create_task(worker()) for _ in workers])
                for watcher in watchers:
                    watcher.cancel()
        except BaseExceptionGroup as errors:
            first: BaseException = errors
            while isinstance(first, BaseExceptionGroup):
                first = first.exceptions[0]
            raise first from None

    async def _guard(self, server: Server) -> None:
        """Restart a server that this process started whenever it is lost, until it is given up."""
        while (supervised := server.supervised) is not None:
            if await supervised.lost(self.http):
                server.up = False
                server.lost.set()
                self._changed.set()
                try:
                    await supervised.restart(self.http)
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
        """Adapt a server's limit to its queue, if it reports one."""
        pause = FIRST_METRICS_SECONDS
        while server.has_queue and not server.given_up:
            await asyncio.sleep(pause)
            pause = min(2 * pause, METRICS_SECONDS)
            queue = await self._queue(server)
            if queue is not None:
                self._adapt(server, *queue)

    async def _queue(self, server: Server) -> tuple[float, float] | None:
        """Return (samples running, samples waiting) of all engines; None if not reported."""
        try:
            answer = await self.http.get(f"{server.root}/metrics", timeout=CHECK_TIMEOUT)
        except httpx.HTTPError:
            return None
        found: Counter[str] = Counter()
        for name, value in _GAUGE.findall(answer.text if answer.status_code == 200 else ""):
            found[name] += float(value)  # type: ignore[assignment]
        return (found["running"], found["waiting"]) if found else None

    def _adapt(self, server: Server, running: float, waiting: float) -> None:
        """Raise the limit if it is reached and nothing waits; lower it if too many samples wait."""
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
        version = await self.http.get(f"{server.root}/version", timeout=CHECK_TIMEOUT)
        return {
            "url": server.url,
            "owned_by": model.get("owned_by"),
            "version": _read(version, lambda page: page["version"]),
            "model": model.get("root") or wanted,
            "max_model_len": offered,
        }

    async def models(self, server: Server) -> dict[str, dict[str, Any]] | None:
        """Return a server's models by name; empty if it lists none, None if it does not answer."""
        try:
            answer = await self.http.get(f"{server.url}/models", timeout=CHECK_TIMEOUT)
        except httpx.HTTPError:
            return None
        return _read(answer, lambda page: {str(model["id"]): model for model in page["data"]}) or {}


def _read(answer: httpx.Response, read: Callable[[Any], Any]) -> Any:
    """Apply ``read`` to an answer's JSON; None if the status is not 200 or ``read`` fails."""
    try:
        return read(answer.json()) if answer.status_code == 200 else None
    except (ValueError, KeyError, TypeError):
        return None
