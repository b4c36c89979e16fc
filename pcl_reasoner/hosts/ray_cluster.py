"""Runs Ray on the hosts of the launch file while a stage needs it.

    node01   ray start --head --port=6379 --num-cpus=32 --block       over SSH, under a keeper
    node02   ray start --address=10.0.0.1:6379 --num-cpus=32 --block
    here     ray start --address=10.0.0.1:6379 --num-cpus=0 --block   this machine joins, too

Every process that joins the cluster must present a token. The token is created here and written to
a file below the run folder, which all hosts share. Only the file's owner can read it.
"""

import os
import secrets
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schema import JoinedCluster, Placement
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.runner.plan import PlannedStage
from pcl_reasoner.supervise.connection import SSH
from pcl_reasoner.supervise.supervised import Supervised, host_line

PORT = 6379
"""Ray's default port."""
_START_SECONDS = 120.0
_POLL_SECONDS = 0.2
_STARTED = "Ray runtime started"
"""Output of ``ray start`` when a host has joined."""
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python"}


@contextmanager
def ray_around(planned: PlannedStage, context: StageContext) -> Iterator[None]:
    """With ``--start ssh``, run Ray on the launch file's hosts while a data stage runs.

    Args:
        planned: The stage.
        context: Its ``placement.data`` gets the cluster's address. It is unchanged if the stage
            is not a data stage, or if the launch file gives the address of a running cluster.

    Raises:
        StageError: See `ray_on_hosts`.
    """
    placement = planned.recipe.launch.placement
    spread = planned.spec.config.uses_data_engine and placement.data.engine == "ray"
    if context.start != SSH or not spread or placement.data.address is not None:
        yield
        return
    context.progress.update(0, None, "hosts", f"starting Ray on {len(placement.hosts)} hosts")
    with ray_on_hosts(placement, planned.folder.parent / "logs" / planned.folder.name) as there:
        data = JoinedCluster(**{**placement.data.model_dump(), **there})
        context.placement = placement.model_copy(update={"data": data})
        yield


@contextmanager
def ray_on_hosts(placement: Placement, logs: Path) -> Iterator[dict[str, str]]:
    """Start Ray on all hosts and on this machine; stop it at the end, also after an error.

    Args:
        placement: The launch file's settings; ``data.workers`` are divided among the hosts.
        logs: Folder for Ray's output, one file per host.

    Yields:
        The cluster's ``address``, and the ``own_address`` of this machine in it.

    Raises:
        StageError: The address of a host is not found, or Ray does not start on a host. If it does
            not start, the message has the last lines of its output.
    """
    hosts = [(host, _address_of(host)) for host in placement.hosts]
    head = f"{hosts[0][1]}:{PORT}"
    each = -(-placement.data.workers // len(hosts))
    running: list[Supervised] = []
    with _with_token(logs.absolute() / "ray_token") as environment:
        try:
            for rank, (host, address) in enumerate(hosts):
                role = ["--head", f"--port={PORT}"] if rank == 0 else [f"--address={head}"]
                role += [f"--node-ip-address={address}", f"--num-cpus={each}"]
                log = logs / f"ray.{host}.log"
                running.append(_start_there(placement, host, role, environment, log))
                if rank == 0:
                    _wait(running)
            own = _own_address(hosts[0][1])
            running.append(_start_here(head, own, logs / "ray.here.log"))
            _wait(running)
            yield {"address": head, "own_address": own}
        finally:
            # The head is stopped last: without it, the others would log errors.
            for one in reversed(running):
                one.release()
            for one in reversed(running):
                one.stop()


@contextmanager
def _with_token(file: Path) -> Iterator[dict[str, str]]:
    """Yield Ray's environment variables for the hosts, with the path of the token file.

    In this process, the variables stay set until its end. Ray reads its environment once per
    process, so all clusters that one process starts have one token.
    """
    shown = os.environ.get("RAY_AUTH_TOKEN") or secrets.token_hex(32)
    mode = {**_QUIET, "RAY_AUTH_MODE": "token"}
    os.environ.update({**mode, "RAY_AUTH_TOKEN": shown})
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    file.touch(mode=0o600)
    file.write_text(shown)
    try:
        yield {**mode, "RAY_AUTH_TOKEN_PATH": str(file)}
    finally:
        file.unlink(missing_ok=True)


def _address_of(host: str) -> str:
    try:
        return socket.gethostbyname(host)
    except OSError as error:
        raise StageError(
            f"{host}: the name is not known ({error}). Correct it, or the name service."
        ) from error


def _start_there(
    placement: Placement, host: str, role: list[str], environment: Mapping[str, str], log: Path
) -> Supervised:
    own = placement.settings_of(host)
    program = str(Path(own.python or sys.executable).with_name("ray"))
    dashboard = ["--include-dashboard=false"] if "--head" in role else []
    command = [program, "start", *role, "--disable-usage-stats", *dashboard, "--block"]
    line = host_line(placement, host, command, program, override_env=environment)
    return Supervised.on(host, line, placement, log)


def _own_address(head: str) -> str:
    """Return this machine's own address in the network of the cluster's head."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((head, PORT))  # connecting a UDP socket sends nothing
        return str(probe.getsockname()[0])


def _start_here(head: str, own: str, log: Path) -> Supervised:
    words = [str(Path(sys.executable).with_name("ray")), "start", f"--address={head}"]
    words += [f"--node-ip-address={own}", "--num-cpus=0", "--disable-usage-stats", "--block"]
    return Supervised.here(words, log)


def _wait(running: list[Supervised]) -> None:
    until = time.monotonic() + _START_SECONDS
    for one in running:
        while _STARTED not in one.log.read_text(encoding="utf-8", errors="replace"):
            if one.poll() is not None:
                raise StageError(f"Ray ended while it started. {one.last_lines()}")
            if time.monotonic() > until:
                raise StageError(
                    f"Ray did not start within {_START_SECONDS:g} s. {one.last_lines()}"
                )
            time.sleep(_POLL_SECONDS)
