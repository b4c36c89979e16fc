"""The memory of a sandbox's processes, where it is looked at."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from sandbox_helpers import PYTHON, need

from pcl_reasoner.sandbox import memory
from pcl_reasoner.sandbox.limits import Limits
from pcl_reasoner.sandbox.memory import children, descendants, private_bytes
from pcl_reasoner.sandbox.pool import Sandboxes
from pcl_reasoner.sandbox.run import Failure
from pcl_reasoner.sandbox.test_cases import read_test_cases

FAMILY = """
import os, sys
own = bytearray(b"x") * (100 << 20)
for megabytes in (30, 50):
    if os.fork() == 0:
        more = bytearray(b"x") * (megabytes << 20)
        if megabytes == 50 and os.fork() == 0:
            more = bytearray(b"x") * (100 << 20)
        break
os.write(1, b"x")
sys.stdin.read()
"""


@pytest.fixture
def family() -> Iterator[int]:
    """A process of 100 MiB; children have 30 and 50 MiB more, a grandchild 100 MiB more."""
    with subprocess.Popen(
        [sys.executable, "-c", FAMILY], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert sum(len(process.stdout.read(1)) for _ in range(4)) == 4
        yield process.pid


def test_what_the_first_process_has_does_not_count(family: int) -> None:
    assert 170 < private_bytes(family) >> 20 < 190


def test_the_family_is_found_without_the_kernels_list(
    family: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = descendants(family)
    assert len(found) == 3
    assert children(family) == found[:2] or set(children(family)) < set(found)
    monkeypatch.setattr(memory, "_kernel_lists_children", lambda: False)
    assert sorted(descendants(family)) == sorted(found)
    assert family in children(os.getpid())


TALKING = """
import os, time
def f(x):
    for _ in range(10):
        if os.fork() == 0:
            memory = bytearray(b"x") * (200 << 20)
            time.sleep(5)
            os._exit(0)
    return 2 * x
"""
WAITING = "from solution import f\nimport time\nassert f(3) == 6\ntime.sleep(1)\n"


def test_the_candidate_is_looked_at_while_the_tests_run() -> None:
    need("unshare")
    tests = read_test_cases({"format": "pytest", "cases": [WAITING]})
    with Sandboxes("unshare", 1, PYTHON, Limits(seconds=3)) as sandboxes:
        failure = sandboxes.test(TALKING, tests).failure
    assert failure is not None
    assert failure.reason == "memory"


def compiles() -> bool:
    """Whether a compiler of C++ runs."""
    for name in Path("/proc").glob("[0-9]*/comm"):
        with suppress(OSError):
            if name.read_text().strip() == "cc1plus":
                return True
    return False


def test_a_compiler_that_takes_too_much_is_the_candidates_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    need("unshare")
    # On a busy machine there is a look before the compiler begins, too.
    much = "pcl_reasoner.sandbox.session.private_bytes"
    monkeypatch.setattr(much, lambda first: 1 << 40 if compiles() else 0)
    cases = [{"input": "", "output": "6"}]
    tests = read_test_cases({"format": "stdin", "language": "cpp", "cases": cases})
    code = "#include <iostream>\nint main() { std::cout << 6; }"
    with Sandboxes("unshare", 1, PYTHON, Limits()) as sandboxes:
        assert sandboxes.test(code, tests).failure == Failure(0, "compile", "memory")


def test_many_processes_together_are_over_the_limit() -> None:
    need("unshare")
    code = f"import os, time\n{TALKING}\nf(3)\ntime.sleep(2)\nprint(6)"
    tests = read_test_cases({"format": "stdin", "cases": [{"input": "", "output": "6"}]})
    with Sandboxes("unshare", 1, PYTHON, Limits(seconds=3)) as sandboxes:
        failure = sandboxes.test(code, tests).failure
        assert failure is not None
        assert failure.reason == "memory"
        assert sandboxes.test("print(6)", tests).failure is None
