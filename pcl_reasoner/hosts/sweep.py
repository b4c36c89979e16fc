"""Kills the processes that a run left on a host, with a keeper that starts nothing."""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict

from pcl_reasoner.core.schema import Placement
from pcl_reasoner.hosts.keeper import Task
from pcl_reasoner.supervise.connection import reason_in

_START_SECONDS = 20


def clear_away(command: list[str], mark: str, placement: Placement) -> str | None:
    """Kill every process of the run on a host.

    Args:
        command: The local command that starts a keeper on the host.
        mark: The value that marks the run's processes on that host.
        placement: The launch file's settings, with the time to wait for an answer.

    Returns:
        Why this failed; None if no process of the run is left on the host.
    """
    task = json.dumps(asdict(Task(run=mark))) + "\n"
    seconds = placement.ssh.connect_seconds + _START_SECONDS
    try:
        done = subprocess.run(
            command, input=task, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return f"it does not answer within {seconds} s"
    except OSError as error:
        return str(error)
    return None if '"ended"' in done.stdout else reason_in(done.stderr)
