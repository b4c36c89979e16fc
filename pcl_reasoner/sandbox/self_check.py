"""A few attacks; ``pclr-ms doctor`` runs them to see whether the sandbox holds on this machine.

Each program reads what it may look for outside, as JSON on its standard input, and prints "out"
if it found a way. They do no harm where they do: the process that they kill, the folder that they
write to and the port that they connect to were made for them. All attacks are in tests/sandbox.

    {"process": 4711, "port": 40211, "folder": "/tmp/pclr-ms-x1", "key": "PCLR_MS_SELF_CHECK"}
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcl_reasoner.core.schema import SandboxPlacement
from pcl_reasoner.sandbox.config import SandboxConfig
from pcl_reasoner.sandbox.opening import Choice, opened
from pcl_reasoner.sandbox.run import Result
from pcl_reasoner.sandbox.test_cases import TestCases

SECONDS = 1.0
"""Seconds per attack; one of them waits for this limit."""
KEY = "PCLR_MS_SELF_CHECK"
"""Environment variable of a process outside."""
RIGHT = "input()\nprint('out')"
"""A program that must pass, so that a sandbox in which nothing runs is found."""
ATTACKS = {
    "many processes": """
import os, time
started = 0
try:
    while started < 200:
        if os.fork() == 0:
            time.sleep(5)
            os._exit(0)
        started += 1
except OSError:
    pass
print("out" if started >= 100 else started)
""",
    "two gigabytes of memory in eight processes": """
import os, time
ready, filled = os.pipe()
for _ in range(8):
    if os.fork() == 0:
        memory = bytearray(b"x") * (256 << 20)
        os.write(filled, b"x")
        time.sleep(5)
        os._exit(0)
number = 0
while number < 8:
    number += len(os.read(ready, 8))
print("out")
""",
    "a connection to this machine": """
import socket
socket.create_connection(("127.0.0.1", told["port"]), 0.5)
print("out")
""",
    "the password file": """
print("out" if ":" in open("/etc/passwd").read() else "")
""",
    "the environment of other processes": """
import glob, os
found = repr(os.environ)
for file in glob.glob("/proc/[0-9]*/environ"):
    try:
        found += open(file).read()
    except OSError:
        pass
print("out" if told["key"] in found else "")
""",
    "a file outside": """
open(told["folder"] + "/file", "w").close()
print("out")
""",
    "killing a process outside": """
import os
os.kill(told["process"], 9)
print("out")
""",
    "a new namespace": """
import ctypes
print("out" if ctypes.CDLL(None).unshare(0x10000000) == 0 else "")
""",
}
"""Name -> program."""
READS = "import json\ntold = json.loads(input())\n"
ENDING = "ending before the tests"
TESTS = TestCases(format="pytest", cases=("from solution import f\nassert f(3) == 6 != f(4)\n",))


@dataclass(frozen=True)
class SelfCheck:
    """What the attacks found.

    Args:
        runs: Whether a program without bad intent runs.
        attacks: Number of attacks.
        open: Names of the attacks that found a way.
    """

    runs: bool
    attacks: int
    open: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether the sandbox does what it is for."""
        return self.runs and not self.open


def check_sandbox(choice: Choice, placement: SandboxPlacement) -> SelfCheck:
    """Run the attacks by the engine that was chosen.

    Raises:
        CannotStart: A sandbox does not start.
    """
    config = SandboxConfig(seconds=SECONDS)
    with _outside() as told, opened(config, placement, choice) as sandboxes:
        case = {"input": json.dumps(told) + "\n", "output": "out"}
        tests = TestCases(format="stdin", cases=(case,))
        right = sandboxes.submit(RIGHT, tests)
        asked: dict[str, Future[Result]] = {
            name: sandboxes.submit(READS + code, tests) for name, code in ATTACKS.items()
        }
        asked[ENDING] = sandboxes.submit("import sys\nsys.exit(0)", TESTS)
        passed = tuple(name for name, one in asked.items() if one.result().failure is None)
        return SelfCheck(right.result().failure is None, len(asked), passed)


@contextmanager
def _outside() -> Iterator[dict[str, Any]]:
    """Make what the attacks look for; yield where it is."""
    words = ["/bin/sh", "-c", "read line"]
    environment = {**os.environ, KEY: "1"}
    with (
        tempfile.TemporaryDirectory(prefix="pclr-ms-") as folder,
        socket.create_server(("127.0.0.1", 0)) as server,
        subprocess.Popen(words, stdin=subprocess.PIPE, env=environment) as process,
    ):
        Path(folder).chmod(0o777)
        port = server.getsockname()[1]
        yield {"process": process.pid, "port": port, "folder": folder, "key": KEY}
