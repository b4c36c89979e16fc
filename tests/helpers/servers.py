"""A stand-in for vLLM that a stage starts by itself, and what became of its processes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pcl_reasoner.core.schema import Placement


def serving(
    folder: Path,
    how: str = "",
    slow: float = 0.0,
    key: str = "sampling",
    program: str = "stand_in_vllm.py",
    **keys: Any,
) -> dict[str, Any]:
    """A launch file's placement whose ``sampling`` or ``judging`` starts the stand-in.

    Args:
        folder: Where its executable and the list of its processes go.
        how: How it fails, see stand_in_vllm.py.
        slow: Seconds that every answer takes.
        key: ``sampling``, ``judging`` or ``scoring``.
        program: The stand-in, beside this file.
        keys: Further keys of it; ``environment`` is added to.
    """
    executable = folder / "bin" / "vllm"
    executable.parent.mkdir(exist_ok=True)
    stand_in = Path(__file__).with_name(program)
    executable.write_text(f'#!/bin/sh\nexec {sys.executable} {stand_in} "$@"\n')
    executable.chmod(0o755)
    told = {"STAND_IN": how, "STAND_IN_SLOW": str(slow), "STAND_IN_PIDS": str(folder / "pids")}
    told |= keys.pop("environment", {})
    value = {"executable": str(executable), "environment": told, **keys}
    return Placement.model_validate({key: value}).model_dump()


def starts(folder: Path) -> list[list[int]]:
    """Of every start the front's and the engine's process number."""
    path = folder / "pids"
    lines = path.read_text().splitlines() if path.exists() else []
    return [[int(word) for word in line.split()] for line in lines]


def runs(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_for(condition: Callable[[], Any], seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.02)


def all_gone(folder: Path) -> bool:
    return not any(runs(process) for start in starts(folder) for process in start)
