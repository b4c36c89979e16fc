"""The API key of a server that a stage starts; the server rejects requests without it.

logs/server.key      mode 0600, made once per run directory
VLLM_API_KEY         in the server's environment, never on a command line
"""

import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from pcl_reasoner.core.schema import Placement, Serving

API_KEY = "VLLM_API_KEY"
"""vLLM's environment variable: requests under /v1 must show this key."""


def configured_key(serving: Serving, placement: Placement, host: str | None) -> str | None:
    """The key that the launch file gives a server; empty: the server has none; None: not given.

    Args:
        serving: ``placement.sampling`` or ``placement.judging``.
        placement: The launch file's ``placement``.
        host: The host that runs the server; None: this machine.
    """
    host_env = placement.per_host[host].env if host in placement.per_host else {}
    return {**placement.env, **host_env, **serving.environment}.get(API_KEY)


def generated_key(folder: Path) -> str:
    """The key of servers without a key in the launch file: made once, readable by its owner only.

    It stays the same for a folder. Some versions of vLLM include VLLM_API_KEY in the cache key of
    their compiled code, and would compile again with another key.

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


def without_key(placement: Placement) -> Placement:
    """A placement whose environments have no key, for commands: every user can read a command."""

    def cleaned(env: Mapping[str, str]) -> dict[str, str]:
        return {name: value for name, value in env.items() if name != API_KEY}

    hosts = {
        name: one.model_copy(update={"env": cleaned(one.env)})
        for name, one in placement.per_host.items()
    }
    return placement.model_copy(update={"env": cleaned(placement.env), "per_host": hosts})
