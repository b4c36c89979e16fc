"""Opens the sandboxes that a launch file describes, or says in one sentence why none can be had."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import dataclass

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schema import SandboxPlacement
from pcl_reasoner.sandbox.cgroups import Groups, find_groups
from pcl_reasoner.sandbox.config import SandboxConfig
from pcl_reasoner.sandbox.engines import Engine, installed_python
from pcl_reasoner.sandbox.pool import ENGINES, Sandboxes, problem_of

HTTP_WORKERS = 64
"""Requests in flight to services, where the launch file does not say."""


@dataclass(frozen=True)
class Choice:
    """The engine that is used.

    Args:
        engine: Its name.
        python: The interpreter in the sandboxes.
        version: The interpreter's version; with ``http``, "of the service".
        groups: Makes control groups; None: memory is looked at, or it is the service's matter.
    """

    engine: str
    python: str
    version: str
    groups: Groups | None = None

    @property
    def memory(self) -> str:
        """What limits the memory of all processes of a sandbox together."""
        if self.engine == "http":
            return "service"
        return "polling" if self.groups is None else f"cgroup v{self.groups.place.version}"


def choose(config: SandboxConfig, placement: SandboxPlacement) -> Choice:
    """Return the engine that works here: the one that is named, or the first that works.

    Raises:
        StageError: None works.
    """
    if placement.engine == "http":
        return Choice("http", "", "of the service")
    try:
        python = installed_python(config.python)
    except FileNotFoundError as error:
        raise StageError(
            f"the sandbox has no interpreter: {error}. Install Python 3.9 or newer there, or set "
            "sandbox.python."
        ) from error
    named: tuple[Engine, ...] = ENGINES if placement.engine == "auto" else (placement.engine,)
    problems: dict[str, str] = {}
    for engine in named:
        problem = problem_of(engine, python, packages=config.python is not None)
        if problem is None:
            return Choice(engine, python, _version(python), find_groups())
        problems[engine] = problem
    told = "; ".join(f"{engine}: {problem}" for engine, problem in problems.items())
    raise StageError(
        f"no sandbox can be had on this machine, so no program can be tested ({told}): install "
        "bubblewrap and allow user namespaces (sysctl user.max_user_namespaces), or name services "
        "by placement: {sandbox: {engine: http, urls: [http://host:8080]}}."
    )


def opened(config: SandboxConfig, placement: SandboxPlacement, choice: Choice) -> Sandboxes:
    """Return the sandboxes of a stage; to be used as a context manager."""
    workers = placement.workers or _processors()
    if placement.engine == "http":
        workers = placement.workers or HTTP_WORKERS
    return Sandboxes(
        choice.engine,  # type: ignore[arg-type]
        workers,
        choice.python,
        config.limits(),
        packages=config.python is not None,
        urls=placement.urls,
        groups=choice.groups,
    )


def _processors() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0))


def _version(python: str) -> str:
    command = [python, "-I", "-S", "-c", "import platform; print(platform.python_version())"]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    return f"{found.stdout.strip()} on {platform.machine()}"
