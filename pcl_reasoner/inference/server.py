"""vLLM servers that a stage starts, watches, restarts and stops.

    placement:
      sampling:
        executable: /opt/vllm/bin/vllm
        arguments: [--dtype, float32]
        environment: {VLLM_CPU_KVCACHE_SPACE: "1"}
    -> vllm serve MODEL --served-model-name policy --host 127.0.0.1 --port 41235 … --dtype float32

A server answers only requests with its API key. A keeper runs it in a process group of its own, and
ends all processes of the server when the stage's process is gone, for whatever reason.
``servers: 2`` starts two servers, each with its own devices:

    server_devices: 4  -> ASCEND_RT_VISIBLE_DEVICES 0,1,2,3 and 4,5,6,7

With ``pclr-ms run --start ssh``, ``servers`` is the number of servers on every host.
"""

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.serving import ServerKind, Serving
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.inference.settings import SamplingConfig
from pcl_reasoner.prompt.model_files import refuse_code
from pcl_reasoner.serving.serve_command import (
    LOCAL_ADDRESS,
    command,
    environment,
    free_port,
    local_command,
    remote_line,
)
from pcl_reasoner.serving.server_key import API_KEY, configured_key, generated_key
from pcl_reasoner.supervise.connection import SSH
from pcl_reasoner.supervise.supervised import Supervised
from pcl_reasoner.weights.identity import weights_hash

POLL_SECONDS = 0.25
HASH_DIGITS = 16
"""Digits of the hash of the weights in a server's second name."""
HEALTH_SECONDS = 10.0
"""Seconds between checks of a running server's /health, and the time limit for its answer."""
UNHEALTHY_CHECKS = 12
"""After this many failed checks in a row, a server counts as hanging and is restarted."""
_DEAD = UNHEALTHY_CHECKS // 2
"""A check counts as this many failures if it shows that the engine has ended, or that nothing
listens. vLLM's front process may stay for ever then: it waits for requests to its engine."""
_NOTHING_LISTENS, _ENGINE_ENDED = 0, 503
_SSH_FAILED = 255
"""Exit code of ssh itself, as opposed to that of the remote command."""


class SupervisedServer:
    """A vLLM server, restarted if lost. On this machine, a free port is used if none is configured.

    Args:
        placement: The launch file's complete ``placement``.
        model: A Hugging Face folder; another one may replace it, for the next start.
        settings: Has the model's name and context length.
        log: File to which the server's output is appended.
        index: Index of the server among several, from 0.
        key: The launch file's key that describes the server: ``sampling``, ``judging``
            or ``scoring``.
        host: Name of the host on which it runs; None: this machine.
        replaceable: True if its weights can be replaced while it runs; it then needs an API key.

    Raises:
        StageError: ``replaceable``, and the launch file sets an empty API key.
    """

    def __init__(
        self,
        placement: Placement,
        model: Path,
        settings: SamplingConfig,
        log: Path,
        index: int = 0,
        key: ServerKind = "sampling",
        host: str | None = None,
        replaceable: bool = False,
    ) -> None:
        serving = placement.serving_of(key)
        assert serving is not None
        self.serving: Serving = serving
        self.placement = placement
        self.model, self.settings, self.log = model, settings, log
        self.index, self.key, self.host, self.replaceable = index, key, host, replaceable
        api_key = configured_key(self.serving, placement, host)
        if replaceable and api_key == "":
            raise StageError(
                f"placement.{key}: {API_KEY} is empty in the launch file, so everyone who reaches "
                "the server could replace its weights. Remove it; each server then gets a key."
            )
        self.api_key = generated_key(log.parent) if api_key is None else api_key
        self.process: Supervised | None = None
        self.port = 0
        self.restarts = 0
        self.stalls = 0
        """How often it has hung although /health answered."""
        self.given_up: str | None = None
        """Why this server was given up while others continue; None if it was not given up."""
        self.holds: Path | None = None
        """Folder of the weights that its process has; None if that is not known."""
        self.started_with: Path | None = None
        """Folder that its process was started with; it stays when the weights are replaced."""
        self.names: list[str] = []
        """Names under which its process offers the model; the second has a hash of the weights."""
        self.answered = False
        """True if it has answered since the stage began."""
        self.start_seconds = 0.0
        """Seconds from its last start until it answered."""
        self._failed_checks = 0
        self._hangs = False
        self._began = self._next_check = 0.0

    @property
    def root(self) -> str:
        """The base URL without ``/v1``."""
        return f"http://{self.host or LOCAL_ADDRESS}:{self.port}"

    def start(self) -> None:
        """Start the process; to wait until the server answers, call ``ready`` afterwards.

        Raises:
            StageError: The executable does not exist on this machine, or is not executable.
        """
        self.port = self.next_port()
        self.started_with = self.model.resolve()
        self.process, self.holds = self._started(), self.model
        self._began = time.monotonic()
        self._hangs = False
        self._failed_checks, self._next_check = 0, self._began + HEALTH_SECONDS

    def next_port(self) -> int:
        """Return the port on which it listens when it is started."""
        first = self.serving.port if self.host is None else self.placement.first_port(self.key)
        return first + self.index if first else free_port()

    def _started(self) -> Supervised:
        self.names = [self.settings.served_model]
        if self.model.is_dir():
            refuse_code(self.model)
            # A name stays when weights are replaced. Without weights, vLLM itself says so and ends.
            if not self.replaceable and any(self.model.glob("*.safetensors")):
                self.names.append(f"{self.names[0]}@{weights_hash(self.model)[:HASH_DIGITS]}")
        offered = (self.serving, self.placement, self.model, self.settings, self.port)
        listen = LOCAL_ADDRESS if self.host is None else "0.0.0.0"
        pooling = self.key == "scoring"
        arguments = command(*offered, listen, pooling, self.replaceable, self.names[1:])
        described = (self.serving, self.placement, arguments)
        if self.host is not None:
            line = remote_line(*described, self.host, self.index, self.port)
            key = {API_KEY: self.api_key}
            return Supervised.on(self.host, line, self.placement, self.log, key)
        executable = Path(self.serving.executable).expanduser()
        if self.serving.container is None and not os.access(executable, os.X_OK):
            raise StageError(
                f"{executable}: not an executable file. Write the path of `vllm`, in the "
                f"environment where it is installed, into the launch file: placement: {{{self.key}:"
                " {executable: …}}."
            )
        variables = environment(self.serving, self.placement, self.index)
        variables[API_KEY] = self.api_key
        words = local_command(*described, self.index, self.port)
        return Supervised.here(words, self.log, environment=variables)

    async def ready(self, http: httpx.AsyncClient) -> None:
        """Wait until the server answers.

        Raises:
            StageError: The server ended, or took longer than ``start_seconds``. The message has
                the last lines of its log.
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
        self.answered, self.start_seconds = True, round(time.monotonic() - self._began, 1)

    @property
    def ended(self) -> bool:
        """True if no process of the server runs."""
        return self.process is None or self.process.poll() is not None

    def stall(self) -> None:
        """Count it as lost until it is restarted, because its requests make no progress."""
        self.stalls += 1
        self._hangs = True

    async def lost(self, http: httpx.AsyncClient) -> bool:
        """Return whether it has ended or hangs; /health is checked every HEALTH_SECONDS."""
        if self.ended or self._hangs:
            return True
        if time.monotonic() >= self._next_check:
            found = await self._health(http, HEALTH_SECONDS)
            # On another host it may be the network.
            dead = found == _ENGINE_ENDED or (found == _NOTHING_LISTENS and self.host is None)
            more = self._failed_checks + (_DEAD if dead else 1)
            self._failed_checks = 0 if found == httpx.codes.OK else more
            self._next_check = time.monotonic() + HEALTH_SECONDS
        return self._failed_checks >= UNHEALTHY_CHECKS

    async def restart(self, http: httpx.AsyncClient) -> None:
        """Stop what is left of a lost server, and start it again.

        Raises:
            StageError: The server was lost more than ``restarts`` times.
        """
        limit = self.serving.restarts
        if self.restarts >= limit:
            raise StageError(
                f"the server was lost {self.restarts + 1} times, restarts is {limit}{_hung(self)}. "
                f"{self._last_lines()}"
            )
        self.restarts += 1
        await self._stop_lost()
        self.start()
        try:
            await self.ready(http)
        except StageError:
            # Its devices may not be free yet, or another process may have taken its port.
            if self.restarts >= limit:
                raise
            await self.restart(http)

    async def _stop_lost(self) -> None:
        """Stop a lost server; if the connection is cut, wait until its keeper has ended it."""
        connection_is_lost = self.process is not None and self.process.poll() == _SSH_FAILED
        await asyncio.to_thread(self.stop)
        if connection_is_lost:
            # The remote keeper gets no heartbeat any more; after notice_seconds it ends the server.
            await asyncio.sleep(self.placement.notice_seconds)

    async def answers(self, http: httpx.AsyncClient, seconds: float = HEALTH_SECONDS) -> bool:
        """Return whether the server's /health answers with status 200 within ``seconds``."""
        return await self._health(http, seconds) == httpx.codes.OK

    async def _health(self, http: httpx.AsyncClient, seconds: float) -> int | None:
        """Return the status of /health, or _NOTHING_LISTENS; None if there is no answer."""
        try:
            answer = await http.get(f"{self.root}/health", timeout=seconds)
        except httpx.ConnectError:
            return _NOTHING_LISTENS
        except httpx.HTTPError:
            return None
        return answer.status_code

    def _last_lines(self) -> str:
        return "" if self.process is None else self.process.last_lines()

    def stop(self) -> None:
        """End the server and every process that it started."""
        process, self.process = self.process, None
        if process is not None:
            process.stop()


def _log_of(log: Path, host: str | None, index: int, several: bool) -> Path:
    parts = [*([host] if host else []), *([str(index)] if several else [])]
    return log.with_suffix("".join(f".{part}" for part in parts) + log.suffix)


def _described(
    context: StageContext,
    key: ServerKind,
    model: Path,
    settings: SamplingConfig,
    log: Path,
    replaceable: bool,
) -> list[SupervisedServer]:
    """Create the servers that the launch file describes, without starting them."""
    serving = context.placement.serving_of(key)
    if serving is None:
        return []
    several = serving.servers > 1
    hosts = context.placement.hosts if context.start == SSH else [None]
    common = (context.placement, model, settings)
    return [
        SupervisedServer(*common, _log_of(log, host, index, several), index, key, host, replaceable)
        for host in hosts
        for index in range(serving.servers)
    ]


def _hung(server: SupervisedServer) -> str:
    if not server.stalls:
        return ""
    seconds = server.serving.stall_seconds
    return f", {server.stalls} times because its requests made no progress for {seconds:g} s"


@contextmanager
def started(
    context: StageContext,
    key: ServerKind,
    model: Path,
    settings: SamplingConfig,
    log: Path,
    replaceable: bool = False,
) -> Iterator[list[SupervisedServer]]:
    """Start the servers that the launch file describes; stop them on exit, also after an error.

    Args:
        context: The key ``key`` of its ``placement`` describes the servers; if that is None, no
            server is started.
        key: ``sampling``, ``judging`` or ``scoring``.
        model: A Hugging Face folder.
        settings: Has the model's name and context length.
        log: File to which the output is appended; several servers get one file each, beside it.
        replaceable: True if the stage replaces their weights while they run.

    Yields:
        The servers, started but not ready yet; empty if none is described.
    """
    servers = _described(context, key, model, settings, log, replaceable)
    try:
        for server in servers:
            server.start()
        yield servers
    finally:
        # All servers get the signal to end before the first one is waited for.
        for server in servers:
            if server.process is not None:
                server.process.release()
        for server in servers:
            server.stop()
    for server in servers:
        if server.given_up:
            context.warn(f"a server was given up while others continued: {server.given_up}")
        elif server.restarts:
            context.warn(
                f"the server was lost and restarted {server.restarts} times{_hung(server)}; see "
                f"{server.log}."
            )
