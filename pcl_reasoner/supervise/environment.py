"""Builds the shell commands that set up the environment of a program on a host.

source /usr/local/Ascend/ascend-toolkit/set_env.sh && export HCCL_CONNECT_TIMEOUT=7200
"""

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from pcl_reasoner.core.programs import Program
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.serving import VISIBLE_DEVICES


def environment_steps(
    placement: Placement,
    host: str,
    python: str | None = None,
    base_env: Mapping[str, str] | None = None,
    program: Program | None = None,
) -> list[str]:
    """Return commands for a program's environment: sourced files, PATH for ``python``, variables.

    Args:
        placement: The launch file's placement.
        host: One of its hosts or spare hosts; empty to ignore ``per_host``.
        python: Interpreter for PATH if ``per_host`` has none; None: PATH is then not changed.
        base_env: Environment variables that the launch file's environment overrides.
        program: The program's own part of the launch file; None: what all programs share.
    """
    program = program or Program()
    host_settings = placement.settings_of(host)
    steps = [f"source {shlex.quote(file)}" for file in sourced_files(placement, host, program)]
    # After the shell file, because CANN's may put another Python first. A host's Python is not in
    # a container.
    path = (None if program.container else host_settings.python) or python
    if path and Path(path).parent != Path():  # a bare name is found in PATH
        steps.append(f"export PATH={shlex.quote(str(Path(path).parent))}:$PATH")
    values = {**(base_env or {}), **placement.env, **host_settings.env, **program.environment}
    if program.container and program.container.ascend:
        # It has the program's devices alone, which are counted from 0 there.
        values = {name: value for name, value in values.items() if name not in VISIBLE_DEVICES}
    return steps + [export(name, value) for name, value in values.items()]


def sourced_files(placement: Placement, host: str, program: Program) -> list[str]:
    """Return the shell files that are sourced before a program: its own, or the host's."""
    if program.set_env is not None:
        return program.set_env
    common = placement.settings_of(host).set_env or placement.set_env
    return [common] if common else []


def package_python(placement: Placement, host: str) -> str:
    """Return the Python on a host that has this package, for modules that are not in a container.

    It is the host's, or else that of ``training`` unless that is in a container, or else the path
    of this machine's interpreter.
    """
    training = placement.training
    own = None if training.container else training.python
    return placement.settings_of(host).python or own or sys.executable


def export(name: str, value: str) -> str:
    """Return the shell command that sets an environment variable."""
    # A launch file's names are checked; quoting keeps any other text from being a command.
    return f"export {shlex.quote(name)}={shlex.quote(value)}"
