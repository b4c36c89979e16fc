"""Builds the shell commands that set up the environment of a command on a host.

source /usr/local/Ascend/ascend-toolkit/set_env.sh && export HCCL_CONNECT_TIMEOUT=7200
"""

import shlex
from collections.abc import Mapping
from pathlib import Path

from pcl_reasoner.core.schema import Placement


def environment_steps(
    placement: Placement,
    host: str,
    python: str | None = None,
    base_env: Mapping[str, str] | None = None,
) -> list[str]:
    """Return commands for a host's environment: a sourced file, PATH for ``python``, variables.

    Args:
        placement: The launch file's placement.
        host: One of its hosts or spare hosts; empty to ignore ``per_host``.
        python: Interpreter for PATH if ``per_host`` has none; None: PATH is then not changed.
        base_env: Environment variables that the launch file's environment overrides.
    """
    host_settings = placement.settings_of(host)
    set_env = host_settings.set_env or placement.set_env
    steps = [f"source {shlex.quote(set_env)}"] if set_env else []
    # After the shell file, because CANN's may put another Python first.
    program = host_settings.python or python
    if program:
        steps.append(f"export PATH={shlex.quote(str(Path(program).parent))}:$PATH")
    values = {**(base_env or {}), **placement.env, **host_settings.env}
    return steps + [export(name, value) for name, value in values.items()]


def export(name: str, value: str) -> str:
    """Return the shell command that sets an environment variable."""
    # A launch file's names are checked; quoting keeps any other text from being a command.
    return f"export {shlex.quote(name)}={shlex.quote(value)}"
