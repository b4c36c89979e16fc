"""vLLM servers that a stage starts, watches, starts again and stops.

    placement:
      sampling:
        executable: /opt/vllm/bin/vllm
        arguments: [--dtype, float32]
        environment: {VLLM_CPU_KVCACHE_SPACE: "1"}
    -> vllm serve MODEL --served-model-name policy --host 127.0.0.1 --port 41235 … --dtype float32

It answers those alone that show the key that it was given. It runs in a process group of its own
under watch.py, which ends every process of it when the stage is gone, however that ended.
``servers: 2`` starts two, each with devices of its own:

    server_devices: 4  -> ASCEND_RT_VISIBLE_DEVICES 0,1,2,3 and 4,5,6,7

With ``pclr-ms run --start ssh`` so many are started on every host of the launch file.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schema import Placement, Serving
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.inference.serve_command import LOCAL_ADDRESS, command, environment, line_there
from pcl_reasoner.inference.server_key import API_KEY, given_key, kept_key
from pcl_reasoner.inference.settings import SamplingConfig
from pcl_reasoner.supervise.connection import SSH
from pcl_reasoner.supervise.watched import Watched

POLL_SECONDS = 0.25
HEALTH_SECONDS = 10.0
"""Between looks at a running server's /health, and the time for an answer."""
UNHEALTHY_LOOKS = 12
"""A server that does not answer so often in a row hangs, and is started again."""
_SSH_FAILED = 255
"""Exit code of ssh where it is not the remote command's."""


class SupervisedServer:
    """One server process at a time, on a port that is free when it starts.

    Args:
        serving: ``placement.sampling`` or ``placement.judging``.
        placement: The launch file's whole placement.
        model: A Hugging Face folder.
        settings: The model's name and context length.
        log: File to which all that it prints is appended.
        place: Which of several servers it is, from 0.
        key: The launch file's key that says how it is started.
        host: Another host that it runs on; None: this machine.
    """

    def __init__(
        self,
        serving: Serving,
        placement: Placement,
        model: Path,
        settings: SamplingConfig,
        log: Path,
        place: int = 0,
        key: str = "sampling",
        host: str | None = None,
    ) -> None:
        self.serving, self.placement = serving, placement
        self.model, self.settings, self.log = model, settings, log
        self.place, self.key, self.host = place, key, host
        given = given_key(serving, placement, host)
        self.api_key = kept_key(log.parent) if given is None else given
        self.process: Watched | None = None
        self.port = 0
        self.restarts = 0
        self.given_up: str | None = None
        """Why it is not started again, while others go on."""
        self._looks_missed = 0
        self._next_look = 0.0

    @property
    def root(self) -> str:
        """The base URL without ``/v1``."""
        return f"http://{self.host or LOCAL_ADDRESS}:{self.port}"

    def start(self) -> None:
        """Start the process; see ``ready`` for the server.

        Raises:
            StageError: There is no such executable on this machine.
        """
        self.port = self._port()
        self.process = self._started()
        self._looks_missed, self._next_look = 0, time.monotonic() + HEALTH_SECONDS

    def _port(self) -> int:
        first: int | None = self.serving.port
        if self.host is not None:
            first = first or self.placement.server_port
        return first + self.place if first else free_port()

    def _started(self) -> Watched:
        given = (self.serving, self.placement, self.model, self.settings, self.port)
        if self.host is not None:
            words = command(*given, listen="0.0.0.0")
            line = line_there(self.serving, self.placement, words, self.host, self.place)
            key = (API_KEY, self.api_key)
            return Watched.on(self.host, line, self.placement, self.log, key)
        executable = Path(self.serving.executable).expanduser()
        if not os.access(executable, os.X_OK):
            raise StageError(
                f"{executable}: not an executable file. Put the path of `vllm`, in the "
                f"environment where it is installed, into the launch file: placement: {{{self.key}:"
                " {executable: …}}."
            )
        own = environment(self.serving, self.placement, self.place) | {API_KEY: self.api_key}
        return Watched.here(command(*given), self.log, own)

    async def ready(self, http: httpx.AsyncClient) -> None:
        """Wait until the server answers.

        Raises:
            StageError: It ended, or takes longer than ``start_seconds``; its log's last lines.
        """
        seconds = self.serving.start_seconds
        until = time.monotonic() + seconds
        while not await self.answers(http, POLL_SECONDS):
            if self.ended:
                raise StageError(f"the server ended while it started. {self._last_lines()}")
            if time.monotonic() > until:
                raise StageError(
                    f"the server did not answer within start_seconds = {seconds:g}. "
                    f"{self._last_lines()}"
                )
            await asyncio.sleep(POLL_SECONDS)

    @property
    def ended(self) -> bool:
        """Has its process ended?"""
        return self.process is None or self.process.ended

    async def lost(self, http: httpx.AsyncClient) -> bool:
        """Has it ended, or does it hang? Looks at /health now and then."""
        if self.ended:
            return True
        if time.monotonic() >= self._next_look:
            answers = await self.answers(http)
            self._looks_missed = 0 if answers else self._looks_missed + 1
            self._next_look = time.monotonic() + HEALTH_SECONDS
        return self._looks_missed >= UNHEALTHY_LOOKS

    async def start_again(self, http: httpx.AsyncClient) -> None:
        """Put a new server in the place of one that was lost.

        Raises:
            StageError: It was lost more often than ``restarts``.
        """
        limit = self.serving.restarts
        if self.restarts >= limit:
            raise StageError(
                f"the server was lost {self.restarts + 1} times, restarts is {limit}. "
                f"{self._last_lines()}"
            )
        self.restarts += 1
        watched = self.process
        connection_is_lost = watched is not None and watched.process.poll() == _SSH_FAILED
        await asyncio.to_thread(self.stop)
        if connection_is_lost:
            # What runs there hears nothing from here, and stops by itself.
            await asyncio.sleep(self.placement.notice_seconds)
        self.start()
        try:
            await self.ready(http)
        except StageError:
            # Devices may not have been given back yet, or the port was taken meanwhile.
            if self.restarts >= limit:
                raise
            await self.start_again(http)

    async def answers(self, http: httpx.AsyncClient, seconds: float = HEALTH_SECONDS) -> bool:
        """Is it well, by its own word, within so many seconds?"""
        try:
            answer = await http.get(f"{self.root}/health", timeout=seconds)
        except httpx.HTTPError:
            return False
        return answer.status_code == 200

    def _last_lines(self) -> str:
        return "" if self.process is None else self.process.last_lines()

    def let_go(self) -> None:
        """Tell the server to end, and do not wait for it."""
        if self.process is not None:
            self.process.let_go()

    def stop(self) -> None:
        """End the server and everything that it started."""
        watched, self.process = self.process, None
        if watched is not None:
            watched.stop()


def _log_of(log: Path, host: str | None, place: int, several: bool) -> Path:
    parts = [*([host] if host else []), *([str(place)] if several else [])]
    return log.with_suffix("".join(f".{part}" for part in parts) + log.suffix)


@contextmanager
def started(
    context: StageContext, key: str, model: Path, settings: SamplingConfig, log: Path
) -> Iterator[list[SupervisedServer]]:
    """The servers that the launch file has a stage start, stopped whatever happens.

    Args:
        context: ``placement.sampling`` or ``placement.judging`` says how to start them; None: no
            server is started.
        key: ``sampling`` or ``judging``.
        model: A Hugging Face folder.
        settings: The model's name and context length.
        log: File to which all that they print is appended; of several, each has its own beside it.
    """
    serving: Serving | None = getattr(context.placement, key)
    if serving is None:
        yield []
        return
    count = serving.servers
    hosts = context.placement.hosts if context.start == SSH else [None]
    servers = [
        SupervisedServer(
            *(serving, context.placement, model, settings),
            _log_of(log, host, place, count > 1),
            place,
            key,
            host,
        )
        for host in hosts
        for place in range(count)
    ]
    try:
        for server in servers:
            server.start()
        yield servers
    finally:
        for server in servers:
            server.let_go()
        for server in servers:
            server.stop()
    for server in servers:
        if server.given_up:
            context.warn(f"a server was given up while others went on: {server.given_up}")
        elif server.restarts:
            context.warn(
                f"the server was lost and started again {server.restarts} times; see {server.log}."
            )


_RECENT_PORTS: deque[int] = deque(maxlen=64)
"""A server takes seconds until it listens on its port: another must not be given it meanwhile."""


def free_port() -> int:
    """A port of this machine that nobody listens on now, and that was not given lately."""
    while True:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port: int = listener.getsockname()[1]
        if port not in _RECENT_PORTS:
            _RECENT_PORTS.append(port)
            return port
