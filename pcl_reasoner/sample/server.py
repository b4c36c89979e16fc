"""A vLLM server that the stage starts, watches, starts again and stops.

    placement:
      sampling:
        executable: /opt/vllm/bin/vllm
        arguments: [--dtype, float32]
        environment: {VLLM_CPU_KVCACHE_SPACE: "1"}
    -> vllm serve MODEL --served-model-name policy --host 127.0.0.1 --port 41235 … --dtype float32

It runs in a process group of its own under watch.py, which ends every process of it when the
stage is gone, however that ended.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from pcl_reasoner.errors import StageError
from pcl_reasoner.sample import watch
from pcl_reasoner.sample.settings import SamplingConfig

STOP_SECONDS = 15.0
"""A server's time to end by itself; then its processes are killed."""
POLL_SECONDS = 0.25
HEALTH_SECONDS = 10.0
"""Between looks at a running server's /health, and the time for an answer."""
UNHEALTHY_LOOKS = 12
"""A server that does not answer so often in a row hangs, and is started again."""
_TAIL_LINES = 20


def command(
    serving: Mapping[str, Any],
    placement: Mapping[str, Any],
    model: Path,
    settings: SamplingConfig,
    port: int,
) -> list[str]:
    """The command that serves a model.

    Args:
        serving: ``placement["sampling"]``.
        placement: For ``set_env`` and ``server_devices``.
        model: A Hugging Face folder.
        settings: The model's name and context length, and its template where it is not its own.
        port: Where to listen.
    """
    executable = Path(serving["executable"]).expanduser()
    # vllm-cpu's package has another name than vllm, which `vllm serve` does not forgive.
    start = (
        ["-m", "vllm.entrypoints.openai.api_server", "--model"]
        if executable.name.startswith("python")
        else ["serve"]
    )
    devices = placement.get("server_devices", 1)
    template = settings.template and ["--chat-template", str(Path(settings.template).resolve())]
    words = [
        *[str(executable), *start, str(model.resolve())],
        *["--served-model-name", settings.served_model],
        *["--host", "127.0.0.1", "--port", str(port)],
        *["--max-model-len", str(settings.max_model_len)],
        # Sampling defaults of the weights' folder must not slip into what the recipe says.
        *["--generation-config", "vllm"],
        *(["--tensor-parallel-size", str(devices)] if devices > 1 else []),
        *(template or []),
        *map(str, serving["arguments"]),
    ]
    source = placement.get("set_env")
    # exec: one process, so that what is watched is the server and not its shell.
    return ["bash", "-c", 'source "$0" && exec "$@"', source, *words] if source else words


def environment(serving: Mapping[str, Any], placement: Mapping[str, Any]) -> dict[str, str]:
    """The server's environment: the folder of its programs first, nothing told to anyone."""
    programs = str(Path(serving["executable"]).expanduser().parent)
    return {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', '')}",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        **placement.get("env", {}),
        **serving["environment"],
    }


class SupervisedServer:
    """One server process at a time, on a port that is free when it starts.

    Args:
        serving: ``placement["sampling"]``: executable, arguments, environment, start_seconds,
            restarts.
        placement: The launch file's whole placement.
        model: A Hugging Face folder.
        settings: The model's name and context length.
        log: File to which all that it prints is appended.
    """

    def __init__(
        self,
        serving: Mapping[str, Any],
        placement: Mapping[str, Any],
        model: Path,
        settings: SamplingConfig,
        log: Path,
    ) -> None:
        self.serving, self.placement = serving, placement
        self.model, self.settings, self.log = model, settings, log
        self.process: subprocess.Popen[bytes] | None = None
        self.port = 0
        self.restarts = 0
        self._looks_missed = 0
        self._next_look = 0.0

    @property
    def root(self) -> str:
        """The base URL without ``/v1``."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the process; see ``ready`` for the server.

        Raises:
            StageError: There is no such executable.
        """
        executable = Path(self.serving["executable"]).expanduser()
        if not os.access(executable, os.X_OK):
            raise StageError(
                f"{executable}: not an executable file. Put the path of `vllm`, in the "
                "environment where it is installed, into the launch file: placement: {sampling: "
                "{executable: …}}."
            )
        self.port = free_port()
        words = command(self.serving, self.placement, self.model, self.settings, self.port)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as handle:
            handle.write(f"== {time.strftime('%Y-%m-%dT%H:%M:%S%z')} {words}\n".encode())
            handle.flush()
            self.process = subprocess.Popen(
                [sys.executable, "-I", watch.__file__, str(STOP_SECONDS), *words],
                stdin=subprocess.PIPE,
                stdout=handle,
                stderr=subprocess.STDOUT,
                env=environment(self.serving, self.placement),
                start_new_session=True,
            )
        self._looks_missed, self._next_look = 0, time.monotonic() + HEALTH_SECONDS

    async def ready(self, http: httpx.AsyncClient) -> None:
        """Wait until the server answers.

        Raises:
            StageError: It ended, or takes longer than ``start_seconds``; its log's last lines.
        """
        seconds = self.serving["start_seconds"]
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
        return self.process is None or self.process.poll() is not None

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
        limit = self.serving["restarts"]
        if self.restarts >= limit:
            raise StageError(
                f"the server was lost {self.restarts + 1} times, restarts is {limit}. "
                f"{self._last_lines()}"
            )
        self.restarts += 1
        await asyncio.to_thread(self.stop)
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
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return f"Its log is {self.log}; the last lines:\n" + "\n".join(lines[-_TAIL_LINES:])

    def stop(self) -> None:
        """End the server and everything that it started."""
        process, self.process = self.process, None
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()  # watch.py ends the server
        try:
            process.wait(2 * STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
        finally:
            # watch.py itself may have been killed: the group has its number.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def free_port() -> int:
    """A port of this machine that nobody listens on now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
