"""The API key of a server that a stage starts; the server rejects requests without it.

logs/server.key      mode 0600, made once per run folder
VLLM_API_KEY         in the server's environment, never on a command line
"""

import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.serving import Serving

API_KEY = "VLLM_API_KEY"
"""vLLM's environment variable for the key that requests under /v1 must have."""


def configured_key(serving: Serving, placement: Placement, host: str | None) -> str | None:
    """Return the API key that the launch file sets for a server.

    An empty text means that the server needs no key. None means that the launch file sets nothing.

    Args:
        serving: ``placement.sampling``, ``placement.judging`` or ``placement.scoring``.
        placement: The launch file's ``placement``.
        host: The host that runs the server; None: this machine.
    """
    host_env = placement.per_host[host].env if host in placement.per_host else {}
    return {**placement.env, **host_env, **serving.environment}.get(API_KEY)


def generated_key(folder: Path) -> str:
    """Return the random API key of a folder; its file is created once, with mode 0600.

    Servers without an API key in the launch file use it. Some versions of vLLM compute the cache
    key of compiled code from VLLM_API_KEY, so they would compile again if the API key changed.

    Args:
        folder: The folder of ``server.key``.
    """
    file = folder / "server.key"
    folder.mkdir(parents=True, exist_ok=True)
    with suppress(FileNotFoundError):
        if key := file.read_text(encoding="utf-8"):
            return key
        file.unlink()
    key = secrets.token_urlsafe(32)
    with os.fdopen(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as handle:
        handle.write(key)
    return key


def cleaned(env: Mapping[str, str]) -> dict[str, str]:
    """Return environment variables without an API key."""
    return {name: value for name, value in env.items() if name != API_KEY}


def without_key(placement: Placement) -> Placement:
    """Return a placement without API keys, for command lines, which every user can read."""
    hosts = {
        name: one.model_copy(update={"env": cleaned(one.env)})
        for name, one in placement.per_host.items()
    }
    return placement.model_copy(update={"env": cleaned(placement.env), "per_host": hosts})
