"""Programs with known verdicts, in every form of tests."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sandbox_helpers import PYTHON, need
from solutions import TASKS, expected, solution

from pcl_reasoner.sandbox.limits import Limits
from pcl_reasoner.sandbox.pool import Sandboxes
from pcl_reasoner.sandbox.run import Result, failed
from pcl_reasoner.sandbox.session import End
from pcl_reasoner.sandbox.test_cases import TestCases, read_test_cases

LIMITS = Limits(seconds=2.0)


@pytest.fixture(scope="module")
def sandboxes() -> Iterator[Sandboxes]:
    need("unshare")
    with Sandboxes("unshare", 2, PYTHON, LIMITS) as found:
        yield found


def forms(name: str, body: str) -> Iterator[tuple[str, TestCases]]:
    """A solution in four forms, with its tests."""
    calls, values = TASKS[name][1], expected(name)
    code = solution(name, body)
    pairs = list(zip(calls, values, strict=True))
    # repr is what a program would print, for all of these types.
    program = f"import json\n{code}\nprint({name}(*json.loads(input())))"
    cases: list[Any] = [{"input": json.dumps(a) + "\n", "output": f"{v}\n"} for a, v in pairs]
    yield program, read_test_cases({"format": "stdin", "cases": cases})
    cases = [{"args": args, "out": value} for args, value in pairs]
    yield code, read_test_cases({"format": "functional", "entry": name, "cases": cases})
    values_equal = "abs({0} - {1}) < 1e-9" if name == "mean" else "{0} == {1}"
    cases = [
        "found = " + f"{name}({', '.join(map(repr, args))})\nfound = list(found) "
        "if isinstance(found, tuple) else found\nassert "
        + values_equal.format("found", repr(value))
        for args, value in pairs
    ]
    yield code, read_test_cases({"format": "assert", "cases": cases})
    tests = "\n".join("    " + line for case in cases for line in case.split("\n"))
    file = f"from solution import {name}\n\n\ndef test_all():\n{tests}\n"
    yield code, read_test_cases({"format": "pytest", "cases": [file]})


PRINTED_OTHERWISE = {
    # A tuple is printed otherwise than the list that it equals, and text is printed as the number.
    ("distinct", "return tuple(sorted({x: 0 for x in xs}))"): {"stdin": False},
    ("double", "return str(2 * x)"): {"stdin": True},
}


@pytest.mark.slow
def test_four_hundred_solutions_get_the_verdicts_that_they_have(sandboxes: Sandboxes) -> None:
    asked = []
    for name, (_, _, right, wrong) in TASKS.items():
        for body in [*right, *wrong]:
            for code, tests in forms(name, body):
                known = PRINTED_OTHERWISE.get((name, body), {}).get(tests.format, body in right)
                asked.append((name, body, tests, known, sandboxes.submit(code, tests)))
    assert len(asked) == 400
    differ = [
        (name, body, tests.format, one.result().failure)
        for name, body, tests, known, one in asked
        if (one.result().failure is None) != known
    ]
    assert differ == []
    assert sum(known for _, _, _, known, _ in asked) == 200


def run(sandboxes: Sandboxes, code: str, stop: bool = True, **tests: Any) -> Result:
    return sandboxes.test(code, read_test_cases(tests), stop)


def stdin(*pairs: tuple[str, str]) -> dict[str, Any]:
    return {"format": "stdin", "cases": [{"input": a, "output": b} for a, b in pairs]}


def test_cpp_is_compiled_once_and_run_per_test(sandboxes: Sandboxes) -> None:
    code = "#include <iostream>\nint main() { long a; std::cin >> a; std::cout << 2 * a; }"
    tests = stdin(("3", "6"), ("-4", "-8"), ("3000000000", "6000000000"))
    assert run(sandboxes, code, language="cpp", **tests).failure is None
    found = run(sandboxes, code.replace("long", "int"), False, language="cpp", **tests)
    assert (found.passed, found.failure.case, found.failure.reason) == (2, 2, "wrong")
    found = run(sandboxes, "int main() { return x; }", language="cpp", **tests)
    assert found.failure.reason == "compile"
    assert "x" in found.failure.text
    found = run(sandboxes, "int main() { return 3; }", language="cpp", **tests)
    assert (found.failure.reason, found.failure.text) == ("exit", "exit code 3")
    crash = "int main() { int *p = 0; return *p; }"
    assert run(sandboxes, crash, language="cpp", **tests).failure.text == "exit code -11"


def test_a_failure_says_which_test_and_why(sandboxes: Sandboxes) -> None:
    found = run(
        sandboxes, "x = int(input())\nprint(6 // (x - 5))", **stdin(("3", "-3"), ("5", "1"))
    )
    assert (found.passed, found.total, found.failure.case) == (1, 2, 1)
    assert found.failure.reason == "exception"
    assert found.failure.text == "ZeroDivisionError: integer division or modulo by zero"
    found = run(sandboxes, "import sys\nprint(6)\nsys.exit(4)", **stdin(("", "6")))
    assert (found.failure.reason, found.failure.text) == ("exit", "exit code 4")


def test_all_tests_run_where_the_share_counts() -> None:
    need("unshare")
    code = "def f(x):\n    if x == 1:\n        while True: pass\n    return x"
    cases = [{"args": [n], "out": n} for n in range(4)]
    tests = {"format": "functional", "entry": "f", "cases": cases}
    with Sandboxes("unshare", 1, PYTHON, Limits(seconds=0.3)) as quick:
        found = run(quick, code, False, **tests)
        assert (found.passed, found.total, found.failure.case) == (3, 4, 1)
        assert found.failure.reason == "time"
        assert run(quick, code, True, **tests).passed == 1


def test_many_tests_may_take_longer_than_each_of_them() -> None:
    """30 tests of 0.05 s are 1.5 s; each may take 1 s."""
    need("unshare")
    code = "import time\ntime.sleep(0.05)\nprint(6)"
    with Sandboxes("unshare", 1, PYTHON, Limits(seconds=1.0)) as quick:
        assert run(quick, code, **stdin(*[("", "6")] * 30)).passed == 30


@contextmanager
def busy_processor() -> Iterator[None]:
    """Run on one processor from here on, and so do four processes that need it all the time."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    # Linux may divide a processor by sessions first.
    command = [PYTHON, "-c", "while True: pass"]
    busy = [subprocess.Popen(command, start_new_session=True) for _ in range(4)]
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)
        for one in busy:
            one.kill()
            one.wait()


WORK = "def work():\n    import time\n    while time.process_time() < 0.15: pass\n"
ON_A_BUSY_MACHINE = {
    "program": (f"{WORK}work()\nprint(6)", stdin(("", "6"))),
    "thread": (
        f"{WORK}import threading\nt = threading.Thread(target=work)\nt.start()\nt.join()\nprint(6)",
        stdin(("", "6")),
    ),
    "tests in a sandbox of their own": (
        f"{WORK}def f():\n    work()\n    return 6",
        {"format": "pytest", "cases": ["from solution import f\ndef test():\n    assert f() == 6"]},
    ),
}


@pytest.mark.parametrize("name", ON_A_BUSY_MACHINE)
def test_a_program_that_waits_for_a_processor_has_the_time_that_it_has_alone(name: str) -> None:
    """It needs 0.15 s of the processor, and may take 0.4 s. With a fifth of it, it takes 0.75 s."""
    need("unshare")
    code, tests = ON_A_BUSY_MACHINE[name]
    with busy_processor(), Sandboxes("unshare", 1, PYTHON, Limits(seconds=0.4)) as sandboxes:
        assert run(sandboxes, code, **tests).failure is None


def test_a_program_that_is_too_slow_fails_on_a_busy_machine_too() -> None:
    need("unshare")
    code = WORK.replace("0.15", "1e9") + "work()"
    with busy_processor(), Sandboxes("unshare", 1, PYTHON, Limits(seconds=0.1)) as sandboxes:
        assert run(sandboxes, code, **stdin(("", "6"))).failure.reason == "time"


def test_who_was_ended_before_it_had_its_own_seconds_is_tested_again_alone() -> None:
    """STRETCH is 5: of 5 s it waited for 4 s and more, or less and so had its second."""
    reached = [End(-9, "time", wall=5.0, waited=waited) for waited in (4.9, 3.0, 0.0)]
    contended = [failed(0, end).contended for end in reached]
    assert contended == [True, False, False]
    assert not failed(0, End(-9, "memory", wall=5.0, waited=4.9)).contended


def test_nothing_of_a_test_is_there_in_the_next_one(sandboxes: Sandboxes) -> None:
    code = (
        "import os\nseen = os.path.exists('/tmp/x')\nopen('/tmp/x', 'w').close()\n"
        "n = globals().get('n', 0) + 1\nif os.fork() == 0:\n    os.setsid()\n"
        "    import time\n    time.sleep(60)\nprint(seen, n, len(os.listdir('/tmp')))"
    )
    assert run(sandboxes, code, **stdin(*[("", "False 1 1")] * 3)).failure is None


def test_a_sandbox_that_cannot_be_cleaned_is_replaced(sandboxes: Sandboxes) -> None:
    code = "import os\nprint(2 * int(input()), len(os.listdir('.')))\nos.chmod('.', 0)"
    tests = stdin(*[(f"{n}", f"{2 * n} 0") for n in range(3)])
    assert run(sandboxes, code, **tests).failure is None


def test_a_problems_own_limits_are_for_cpp_and_raise_those_for_python() -> None:
    need("unshare")
    slow = "import time\ntime.sleep(0.6)\nprint(1)"
    big = "x = bytearray(300 << 20)\nprint(1)"
    one = stdin(("", "1"))
    with Sandboxes("unshare", 1, PYTHON, Limits(seconds=0.3, megabytes=128)) as small:
        assert run(small, slow, **one).failure.reason == "time"
        assert run(small, slow, **one, seconds=3).failure is None
        failure = run(small, big, **one).failure
        assert (failure.reason, failure.text) == ("exception", "MemoryError")
        assert run(small, big, **one, seconds=3, megabytes=512).failure is None
    cpp = '#include <unistd.h>\n#include <cstdio>\nint main() { usleep(600000); puts("1"); }'
    with Sandboxes("unshare", 1, PYTHON, Limits(seconds=3.0)) as large:
        assert run(large, slow, **one, seconds=0.2, megabytes=64).failure is None
        assert run(large, cpp, language="cpp", **one).failure is None
        assert run(large, cpp, language="cpp", **one, seconds=0.2).failure.reason == "time"


def test_a_checker_decides_where_several_answers_are_right(sandboxes: Sandboxes) -> None:
    checker = (
        "import sys\nn = int(open(sys.argv[1]).read())\n"
        "a, b = map(int, open(sys.argv[3]).read().split())\nprint(int(a + b == n))"
    )
    tests = {**stdin(("7", "0 7"), ("4", "0 4")), "checker": checker}
    assert run(sandboxes, "n = int(input())\nprint(1, n - 1)", **tests).failure is None
    assert run(sandboxes, "print(3, 4)", **tests).failure.case == 1
    # What the checker cannot read is wrong.
    assert run(sandboxes, "print('x')", **tests).failure.reason == "wrong"


def test_an_input_of_megabytes_reaches_a_program_that_reads_late(sandboxes: Sandboxes) -> None:
    text = "1\n" * 2_000_000
    late = "import sys, time\ntime.sleep(0.2)\nprint(sum(map(int, sys.stdin)))"
    assert run(sandboxes, late, **stdin((text, "2000000"))).failure is None
    assert run(sandboxes, "print(5)", **stdin((text, "5"))).failure is None


def test_values_come_back_as_they_are(sandboxes: Sandboxes) -> None:
    values = [None, True, 10**30, -0.5, "½\u0000x", [1, [2]], {"a": [1]}, "\ud800"]
    listed = "[None, True, 10**30, -0.5, '½\\0x', (1, [2]), {'a': [1]}, '\\ud800']"
    code = f"def f(k):\n    return {listed}[k]"
    cases = [{"args": [k], "out": value} for k, value in enumerate(values)]
    assert run(sandboxes, code, format="functional", entry="f", cases=cases).failure is None
    asserts = ["assert f(0) == {(1, 2): {3}}", "assert f(0) == {(1, 2): {4}}"]
    found = run(sandboxes, "def f(k):\n    return {(1, 2): {3}}", format="assert", cases=asserts)
    assert (found.passed, found.failure.case) == (1, 1)
    assert found.failure.text == "{'d': [[{'t': [1, 2]}, {'s': [3]}]]}"


def test_a_method_of_solution_is_called_and_common_names_need_no_import(
    sandboxes: Sandboxes,
) -> None:
    code = (
        "class Solution:\n    def pairs(self, xs: List[int]) -> Dict[int, int]:\n"
        "        return dict(Counter(xs).most_common(1)) if xs else defaultdict(int)"
    )
    cases = [{"args": [[4, 4, 5]], "out": {}}]
    tests = {"format": "functional", "entry": "pairs", "cases": cases}
    assert run(sandboxes, code, **tests).failure.text == "{'d': [[4, 2]]}"


def test_a_sandbox_that_is_lost_is_tried_again_and_then_a_wrong_answer(
    sandboxes: Sandboxes, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pcl_reasoner.sandbox.session import End, Session

    lost: list[int] = []
    run_really = Session.run

    def lose(self: Session, start: dict[str, Any]) -> End:
        lost.append(1)
        if len(lost) in losing:
            self.close()
            return End(-9, limit="lost")
        return run_really(self, start)

    monkeypatch.setattr(Session, "run", lose)
    losing = {1}
    assert run(sandboxes, "print(6)", **stdin(("", "6"))).failure is None
    lost.clear()
    losing = {1, 2}
    assert run(sandboxes, "print(6)", **stdin(("", "6"))).failure.reason == "lost"
