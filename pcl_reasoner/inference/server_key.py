"""The key of a server that a stage starts: those alone are answered that show it.

logs/server.key      0600, made once a run directory
VLLM_API_KEY         in the server's environment, and in no command
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from pcl_reasoner.core.schema import Placement, Serving

API_KEY = "VLLM_API_KEY"
"""vLLM's variable: what is under /v1 is for those alone that show this key."""


def given_key(serving: Serving, placement: Placement, host: str | None) -> str | None:
    """The key that the launch file gives a server; empty where it is to have none.

    Args:
        serving: ``placement.sampling`` or ``placement.judging``.
        placement: The launch file's.
        host: One of its hosts; None: this machine.
    """
    of_host = placement.per_host[host].env if host in placement.per_host else {}
    found: str | None = {**placement.env, **of_host, **serving.environment}.get(API_KEY)
    return found


def kept_key(folder: Path) -> str:
    """The key of servers that are given none: made once a folder, and read by its owner alone.

    Always the same one there, as versions of vLLM that count VLLM_API_KEY among what they compile
    for would compile anew with another.
    """
    file = folder / "server.key"
    folder.mkdir(parents=True, exist_ok=True)
    with suppress(FileNotFoundError):
        if kept := file.read_text(encoding="utf-8"):
            return kept
        file.unlink()
    made = secrets.token_urlsafe(32)
    with os.fdopen(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as handle:
        handle.write(made)
    return made


def without_key(placement: Placement) -> Placement:
    """A placement whose environments have no key: what stands in a command, everyone reads."""

    def cleaned(env: Mapping[str, str]) -> dict[str, str]:
        return {name: value for name, value in env.items() if name != API_KEY}

    hosts = {
        name: one.model_copy(update={"env": cleaned(one.env)})
        for name, one in placement.per_host.items()
    }
    return placement.model_copy(update={"env": cleaned(placement.env), "per_host": hosts})
