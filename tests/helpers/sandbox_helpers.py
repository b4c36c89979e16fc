"""Engines that this machine has, tests as another user, and what a candidate could leave behind."""

from __future__ import annotations

import os
import pickle
import shutil
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pcl_reasoner.sandbox.engines import Engine, installed_python, user_of
from pcl_reasoner.sandbox.pool import ROLES, problem_of

PYTHON = installed_python(None)
ORDINARY_USER = 4321
"""A user id without a name."""


def need(engine: Engine) -> None:
    """Skip a test, with the reason, where an engine does not work; CI must have bubblewrap."""
    if engine == "bubblewrap" and shutil.which("bwrap") is None:
        if os.environ.get("CI"):
            pytest.fail("bubblewrap is not installed")
        pytest.skip("bubblewrap is not installed (apt-get install bubblewrap)")
    if problem := problem_of(engine, PYTHON):
        pytest.skip(f"{engine}: {problem}")


def as_user(action: Callable[[], Any]) -> Any:
    """Return what a function returns in a process of an ordinary user.

    Everything that it needs must be imported already: the user may not be able to read it.
    """
    if os.getuid() != 0:
        return action()
    given, taken = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(ORDINARY_USER, ORDINARY_USER, ORDINARY_USER)
            os.setresuid(ORDINARY_USER, ORDINARY_USER, ORDINARY_USER)
            answer: tuple[bool, Any] = (True, action())
        except BaseException:
            answer = (False, traceback.format_exc())
        with os.fdopen(taken, "wb") as pipe:
            pickle.dump(answer, pipe)
        os._exit(0)
    os.close(taken)
    with os.fdopen(given, "rb") as pipe:
        data = pipe.read()
    os.waitpid(child, 0)
    worked, value = pickle.loads(data)
    assert worked, value
    return value


def host_state() -> dict[str, Any]:
    """What a candidate that got out could have changed; other tests may run at the same time."""
    return {
        "processes": sorted(_owners("/proc")),
        "temporary files": sorted(_owners("/tmp")),
        "shared memory": sorted(_owners("/dev/shm")),
        "programs": sorted(path.name for path in Path("/usr/bin").iterdir()),
        "root": sorted(path.name for path in Path("/").iterdir()),
        "IPC": Path("/proc/sysvipc/shm").read_text(),
    }


def settled_state(expected: dict[str, Any]) -> dict[str, Any]:
    """The host's state, as soon as it is the expected one: the kernel ends processes by and by."""
    until = time.monotonic() + 10
    while (found := host_state()) != expected and time.monotonic() < until:
        time.sleep(0.05)
    return found


def _owners(folder: str) -> list[str]:
    """Names of the entries that belong to users of this process's sandboxes."""
    users = {*map(user_of, range(2 * ROLES)), ORDINARY_USER}
    found = []
    for entry in os.scandir(folder):
        try:
            owner = entry.stat(follow_symlinks=False).st_uid
        except OSError:
            continue
        found += [entry.name] if owner in users else []
    return found
