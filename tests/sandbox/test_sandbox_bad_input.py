"""Programs, tests and inputs that are too large, no text, or made to stop a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sandbox_helpers import PYTHON, need

from pcl_reasoner.sandbox.limits import Limits
from pcl_reasoner.sandbox.pool import Sandboxes
from pcl_reasoner.sandbox.run import Failure, Result
from pcl_reasoner.sandbox.test_cases import read_test_cases

MEGABYTE = 1 << 20


@pytest.fixture(scope="module")
def sandboxes() -> Iterator[Sandboxes]:
    need("unshare")
    limits = Limits(seconds=3.0)
    with Sandboxes("unshare", 2, PYTHON, limits) as found:
        yield found


def run(sandboxes: Sandboxes, code: str, **tests: Any) -> Result:
    return sandboxes.test(code, read_test_cases(tests), stop=False)


def stdin(given: str, expected: str) -> dict[str, Any]:
    return {"format": "stdin", "cases": [{"input": given, "output": expected}]}


def reason(result: Result) -> str | None:
    return result.failure and result.failure.reason


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_gigabyte_of_output_ends_at_the_limit(sandboxes: Sandboxes, stream: str) -> None:
    code = f"import sys\nfor _ in range(1 << 14):\n    sys.{stream}.write('6\\n' * 32768)"
    found = run(sandboxes, code, **stdin("", "6"))
    assert found.failure == Failure(0, "output")
    calls = {"format": "functional", "entry": "f", "cases": [{"args": [], "out": 6}]}
    found = run(sandboxes, f"{code}\ndef f():\n    return 6", **calls)
    assert found.failure == Failure(0, "output")


def test_an_expected_output_may_be_longer_than_the_limit(sandboxes: Sandboxes) -> None:
    text = "123456789\n" * 300_000
    code = "print('123456789\\n' * int(input()))"
    assert run(sandboxes, code, **stdin("300000", text)).failure is None
    # Four times as long as what is expected is too long.
    assert reason(run(sandboxes, code, **stdin("2000000", text))) == "output"
    values = list(range(400_000))
    calls = {"format": "functional", "entry": "f"}
    code = "def f(n):\n    return list(range(n))"
    cases = [{"args": [400_000], "out": values}]
    assert run(sandboxes, code, **calls, cases=cases).failure is None
    assert reason(run(sandboxes, code, **calls, cases=[{"args": [400_000], "out": 1}])) == "output"


def test_long_arguments_go_both_ways(sandboxes: Sandboxes) -> None:
    code = "def f(xs):\n    xs.append(0)\n    return xs"
    tests = (
        "from solution import f\nxs = list(range(600_000))\nassert f(xs) == xs\nassert xs[-1] == 0"
    )
    assert run(sandboxes, code, format="pytest", cases=[tests]).failure is None


def test_64_megabytes_of_tests(sandboxes: Sandboxes) -> None:
    text = "1\n" * (32 * MEGABYTE)
    code = "import sys\nprint(sum(map(len, sys.stdin)))"
    assert run(sandboxes, code, **stdin(text, str(64 * MEGABYTE)), seconds=10).failure is None
    code = "#include <cstdio>\nint main() { long n = 0; while (getchar() >= 0) n++;"
    code += ' printf("%ld", n); }'
    tests = {**stdin(text, str(64 * MEGABYTE)), "language": "cpp", "seconds": 10}
    # What the sandbox's own process needs for it is not the program's.
    assert run(sandboxes, code, **tests, megabytes=128).failure is None


def test_nul_and_half_of_a_surrogate_pair(sandboxes: Sandboxes) -> None:
    shows = "import sys\nprint(ascii(sys.stdin.buffer.read()))"
    assert run(sandboxes, shows, **stdin("3\0\n", "b'3\\x00\\n'")).failure is None
    assert run(sandboxes, "print('a\\0b')", **stdin("", "a\0b")).failure is None
    found = run(sandboxes, "print(6)\0", **stdin("", "6"))
    assert reason(found) == "exception"
    assert "null bytes" in str(found.failure)
    assert reason(run(sandboxes, "print('\ud800')", **stdin("", "6"))) == "exception"
    main = '#include <cstdio>\nint main() { puts("6"); }\n'
    assert run(sandboxes, main + "// \0 \ud800", language="cpp", **stdin("", "6")).failure is None
    checker = "import sys\nprint(int(open(sys.argv[3]).read() == '6\\n'))"
    odd = stdin("\ud800", "\ud800")
    assert run(sandboxes, "print(6)", checker=checker, **odd).failure is None


@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("cpp", '#include "/dev/zero"'),
        ("cpp", "char x[1ull << 31] = {1};\nint main() {}"),
        ("python", "(" * 100_000),
        ("python", "-" * 500_000 + "1"),
        ("python", "a" + ".b" * 50_000),
    ],
)
def test_what_the_compiler_cannot_do_is_the_candidates_failure(
    sandboxes: Sandboxes, language: str, code: str
) -> None:
    found = run(sandboxes, code, language=language, **stdin("", "6"))
    assert reason(found) in ("compile", "exception", "exit")


def test_the_compiler_may_need_more_memory_than_the_program(sandboxes: Sandboxes) -> None:
    code = '#include <bits/stdc++.h>\nint main() { std::regex r("a"); std::cout << 6; }'
    tests = {**stdin("", "6"), "language": "cpp", "megabytes": 64}
    assert run(sandboxes, code, **tests).failure is None


def test_a_flood_of_replies_does_not_stop_the_checker(sandboxes: Sandboxes) -> None:
    # The first reply stands for a function; the others fill the pipe that nobody reads while the
    # checker writes a long argument.
    code = """
import os
os.write(4, b'{"value": {"o": [7, "object", [1], ["function"]]}}\\n')
for _ in range(8):
    os.write(4, (b'{"value": 1}' + b' ' * 400 + b'\\n') * 150)
def f(x):
    return 1
"""
    tests = "from solution import f\nassert f('x' * 800_000) == 2"
    assert reason(run(sandboxes, code, format="pytest", cases=[tests])) == "wrong"


def test_tests_that_write_to_the_channel_fail(sandboxes: Sandboxes) -> None:
    for line in ("6", "[]", "no JSON", '{"verdict": {}}', '{"verdict": 6}'):
        tests = f"import os\nos.write(4, b'{line}\\n')\nimport time\ntime.sleep(0.1)"
        found = run(sandboxes, "def f(x):\n    return 6", format="pytest", cases=[tests])
        assert reason(found) == "wrong"
