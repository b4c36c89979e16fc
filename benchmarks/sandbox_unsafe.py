"""How many of the attacks (tests/sandbox/attacks.py) the engine ``rlimits`` holds.

    python benchmarks/sandbox_unsafe.py

It has no namespaces, so an attack can reach the process that tests it and everything of its user.
Each attack therefore runs in a jail of its own: namespaces made by this program, an ordinary user,
a control group where there is one. Nothing depends on the result; it is the reason for "unsafe".
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests" / "sandbox"), str(ROOT / "tests" / "helpers")]

from attacks import ATTACKS  # type: ignore[import-not-found] # noqa: E402
from test_sandbox_attacks import (  # type: ignore[import-not-found] # noqa: E402
    CASES,
    LIMITS,
    RIGHT,
)

from pcl_reasoner.sandbox.cgroups import find_groups  # noqa: E402
from pcl_reasoner.sandbox.engines import SYSTEM, installed_python, user_of  # noqa: E402
from pcl_reasoner.sandbox.memory import private_bytes  # noqa: E402
from pcl_reasoner.sandbox.pool import Sandboxes  # noqa: E402
from pcl_reasoner.sandbox_program import enter, messages  # noqa: E402
from pcl_reasoner.sandbox_program.processes import SET_DUMPABLE  # noqa: E402

SECONDS = 30.0
"""Seconds after which a jail is ended from outside."""
JAIL_BYTES = 2 << 30
"""Bytes of memory of all processes in a jail."""
SHOWN = [folder for folder in map(Path, (*SYSTEM, "/etc")) if folder.is_dir()]
"""What is visible in a jail, read-only: more than in a sandbox."""


def test_one(form: str, code: str) -> dict[str, Any]:
    """Test a program without namespaces; look at what it leaves."""
    with Sandboxes("rlimits", 1, installed_python(None), LIMITS) as sandboxes:
        found = sandboxes.test(code, CASES[form], stop=False)
        right = sandboxes.test(RIGHT[form], CASES[form]).failure is None
    time.sleep(0.2)  # the kernel ends processes by and by
    processes = list(Path("/proc").glob("[0-9]*"))
    return {
        "passed": found.passed == found.total,
        "reason": found.failure and found.failure.reason,
        "a right answer fails after it": not right,
        "processes are left": len(processes) > 2,
        "files are left": any(Path(tempfile.gettempdir()).iterdir()),
    }


def in_jail(form: str, code: str, answer: int) -> None:
    """Enter a jail as an ordinary user and run the test in its process 2; never returns."""
    try:
        os.setsid()
        user = user_of(0)
        if os.getuid() == 0:
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
            # Otherwise its files in /proc, e.g. uid_map, are still root's.
            ctypes.CDLL(None).prctl(SET_DUMPABLE, 1, 0, 0, 0)
        settings = {
            "uid": os.getuid(),
            "gid": os.getgid(),
            "folders": [str(folder) for folder in SHOWN if not folder.is_symlink()],
            "links": {str(one): str(one.readlink()) for one in SHOWN if one.is_symlink()},
            "disk_megabytes": 256,
            "filter": "",
        }
        sys.argv = ["jail", json.dumps(settings)]
        # In a sandbox both files are one text.
        vars(enter)["loads"] = messages.loads
        enter.enter()
        tester = os.fork()
        if tester == 0:
            os.write(answer, json.dumps(test_one(form, code)).encode())
            os._exit(0)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        while os.wait()[0] != tester:
            pass
    except BaseException as error:
        os.write(answer, json.dumps({"reason": f"the jail failed: {error}"}).encode())
    finally:
        os._exit(0)


def attack(form: str, code: str) -> dict[str, Any]:
    """Run one attack in a jail; return what is known of it."""
    given, taken = os.pipe()
    waiting, ready = os.pipe()
    jail = os.fork()
    if jail == 0:
        os.close(given)
        os.read(waiting, 1)
        in_jail(form, code, taken)
    os.close(taken)
    groups = find_groups()
    group = groups.make(256) if groups else None
    if group is not None:
        group.limit_memory(JAIL_BYTES >> 20)
        group.add([jail])
    os.write(ready, b"x")
    until = time.monotonic() + SECONDS
    while os.waitpid(jail, os.WNOHANG) == (0, 0):
        if time.monotonic() > until or private_bytes(jail) > JAIL_BYTES:
            os.kill(jail, signal.SIGKILL)
            os.waitpid(jail, 0)
            break
        time.sleep(0.02)
    with os.fdopen(given, "rb") as pipe:
        text = pipe.read()
    if groups is not None and group is not None:
        groups.remove(group)
        groups.close()
    return json.loads(text) if text else {"reason": "it ended the process that tests it"}


def import_all() -> None:
    """Test right programs, so that all modules are imported before a jail hides their files."""
    for form, code in RIGHT.items():
        assert not test_one(form, code)["a right answer fails after it"]


def main() -> None:
    """Print a row per attack, and how many were held."""
    import_all()
    kinds: Counter[str] = Counter()
    print("| attack | what happened |\n|---|---|")
    for name, (form, code) in ATTACKS.items():
        found = attack(form, code)
        told = [key for key, value in found.items() if value is True]
        if "passed" not in found:
            told = [found["reason"]]
        kinds["held" if not told else "not held"] += 1
        print(f"| {name} | {', '.join(told) or found['reason']} |", flush=True)
    print(f"\n{kinds['held']} of {len(ATTACKS)} are a wrong answer that leaves nothing behind")


if __name__ == "__main__":
    main()
