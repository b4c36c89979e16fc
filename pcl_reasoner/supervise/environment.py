"""The environment of a command on a host, as the steps of a shell line.

source /usr/local/Ascend/ascend-toolkit/set_env.sh && export HCCL_CONNECT_TIMEOUT=3600
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from pcl_reasoner.core.schema import HostSettings, Placement


def environment_steps(
    placement: Placement,
    host: str,
    python: str | None = None,
    further: Mapping[str, str] | None = None,
) -> list[str]:
    """What sets up a host's environment: a shell file, variables, the place of ``python``.

    Args:
        placement: The launch file's.
        host: One of its hosts or spare hosts.
        python: Path of ``python`` where ``per_host`` names none; None: from PATH.
        further: Environment under the launch file's.
    """
    own = placement.per_host.get(host, HostSettings())
    set_env = own.set_env or placement.set_env
    steps = [f"source {shlex.quote(set_env)}"] if set_env else []
    # After the shell file: CANN's may put another Python in front.
    program = own.python or python
    if program:
        steps.append(f"export PATH={shlex.quote(str(Path(program).parent))}:$PATH")
    values = {**(further or {}), **placement.env, **own.env}
    return steps + [f"export {name}={shlex.quote(value)}" for name, value in values.items()]
