"""Tests by a service that speaks SandboxFusion's protocol."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from fusion_server import FusionServer
from sandbox_helpers import PYTHON

from pcl_reasoner.sandbox import fusion
from pcl_reasoner.sandbox.limits import Limits
from pcl_reasoner.sandbox.pool import Sandboxes
from pcl_reasoner.sandbox.run import Failure, Result
from pcl_reasoner.sandbox.session import CannotStart
from pcl_reasoner.sandbox.test_cases import read_test_cases


@pytest.fixture
def server() -> Iterator[FusionServer]:
    found = FusionServer()
    yield found
    found.close()


@pytest.fixture
def sandboxes(server: FusionServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sandboxes]:
    monkeypatch.setattr(fusion, "PAUSE_SECONDS", 0.01)
    limits = Limits(seconds=2.0, megabytes=256)
    with Sandboxes("http", 2, PYTHON, limits, urls=[f"{server.url}/"]) as found:
        yield found


def run(sandboxes: Sandboxes, code: str, **tests: Any) -> Result:
    return sandboxes.test(code, read_test_cases(tests), stop=False)


STDIN: dict[str, Any] = {
    "format": "stdin",
    "cases": [{"input": "3\n", "output": "6\n"}, {"input": "5\n", "output": "10\n"}],
}


def test_a_program_is_one_request_per_test(server: FusionServer, sandboxes: Sandboxes) -> None:
    assert run(sandboxes, "print(2 * int(input()))", **STDIN) == Result(2, 2)
    assert [body["stdin"] for body in server.asked] == ["3\n", "5\n"]
    body = server.asked[0]
    assert (body["language"], body["run_timeout"], body["memory_limit_MB"]) == ("python", 2.0, 256)
    assert run(sandboxes, "print(6)", **STDIN).failure == Failure(1, "wrong", "6\n")
    found = run(sandboxes, "print(1 // (int(input()) - 3))", **STDIN).failure
    assert (found.case, found.reason) == (0, "exception")
    slow = {**STDIN, "seconds": 0.2}
    assert run(sandboxes, "while True: pass", **slow).failure.reason == "time"


def test_cpp_and_a_checker(sandboxes: Sandboxes) -> None:
    code = "#include <iostream>\nint main() { int a; std::cin >> a; std::cout << 2 * a; }"
    assert run(sandboxes, code, language="cpp", **STDIN).failure is None
    assert run(sandboxes, "int main() {", language="cpp", **STDIN).failure.reason == "compile"
    checker = "import sys\nprint(int(open(sys.argv[3]).read() != open(sys.argv[2]).read()))"
    assert run(sandboxes, "print('x')", checker=checker, **STDIN).failure is None
    assert run(sandboxes, "print(6)", checker=checker, **STDIN).failure.case == 0


def test_functions_and_the_tests_own_code(sandboxes: Sandboxes) -> None:
    right = "print('noise')\ndef f(x):\n    print('more')\n    return (x, 2 * x)"
    cases = [{"args": [3], "out": [3, 6]}]
    tests = {"format": "functional", "entry": "f", "cases": cases}
    assert run(sandboxes, right, **tests) == Result(1, 1)
    assert run(sandboxes, right.replace("2 * x", "x"), **tests).failure.reason == "wrong"
    found = run(sandboxes, "def f(x):\n    raise KeyError(x)", **tests).failure
    assert (found.reason, found.text) == ("exception", "KeyError: 3")
    found = run(sandboxes, "import os\nos._exit(0)", **tests).failure
    assert (found.reason, found.text) == ("exit", "it ended before it answered")
    file = "from solution import f\n\ndef test_f():\n    assert f(3)[1] == 6\n"
    assert run(sandboxes, right, format="pytest", cases=[file]) == Result(1, 1, weak=1)
    found = run(sandboxes, "import sys\nsys.exit(0)", format="pytest", cases=[file])
    assert found.failure.reason == "wrong"
    # A literal assert needs no code of the tests.
    simple = ["assert f(3) == (3, 6)"]
    assert run(sandboxes, right, format="assert", cases=simple) == Result(1, 1)


def test_a_service_that_fails_is_asked_again_and_then_an_error(
    server: FusionServer, sandboxes: Sandboxes
) -> None:
    told = {**FusionServer.answer("SandboxError"), "message": "no room"}
    broken = json.dumps(told).encode()
    server.failing = [b"<html>", broken]
    assert run(sandboxes, "print(2 * int(input()))", **STDIN).failure is None
    assert len(server.asked) == 4
    server.failing = [broken] * 3
    with pytest.raises(CannotStart, match="/run_code: no room, after 3 requests"):
        run(sandboxes, "print(6)", **STDIN)
    server.close()
    with pytest.raises(CannotStart, match="Start the service, or correct placement.sandbox.urls"):
        run(sandboxes, "print(6)", **STDIN)
