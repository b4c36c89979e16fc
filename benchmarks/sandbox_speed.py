"""Responses per second in sandboxes, beside a bare loop over subprocesses that keeps nobody in.

    python benchmarks/sandbox_speed.py [RESPONSES]

A response is a small program with ten tests. The bare loop starts the interpreter for every test,
as a grader without a sandbox does. Both run in this process, in turn.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pcl_reasoner.sandbox.cgroups import find_groups
from pcl_reasoner.sandbox.engines import installed_python
from pcl_reasoner.sandbox.limits import Limits
from pcl_reasoner.sandbox.pool import ENGINES, Sandboxes, problem_of
from pcl_reasoner.sandbox.test_cases import TestCases

PROGRAM = "print(2 * int(input()))"
FUNCTION = "def f(x):\n    return 2 * x"
NUMBERS = range(10)
STDIN = TestCases(
    format="stdin", cases=tuple({"input": f"{n}\n", "output": f"{2 * n}\n"} for n in NUMBERS)
)
CALLS = TestCases(
    format="functional", entry="f", cases=tuple({"args": [n], "out": 2 * n} for n in NUMBERS)
)


FORMS = (("stdin", PROGRAM, STDIN), ("calls", FUNCTION, CALLS))


def bare(python: str, responses: int, workers: int) -> float:
    """Responses per second of the bare loop."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "program.py"
        file.write_text(PROGRAM)

        def one(_: int) -> None:
            for number in NUMBERS:
                words = [python, "-I", "-S", str(file)]
                done = subprocess.run(words, input=f"{number}\n", capture_output=True, text=True)
                assert done.stdout == f"{2 * number}\n"

        began = time.monotonic()
        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(one, range(responses)))
        return responses / (time.monotonic() - began)


def sandboxed(sandboxes: Sandboxes, code: str, tests: TestCases, responses: int) -> float:
    """Responses per second in sandboxes."""
    began = time.monotonic()
    asked = [sandboxes.submit(code, tests) for _ in range(responses)]
    assert all(one.result().failure is None for one in asked)
    return responses / (time.monotonic() - began)


def main() -> None:
    """Print a row per engine and form of test."""
    responses = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    python, workers = installed_python(None), os.cpu_count() or 1
    print(f"{responses} responses of {len(NUMBERS)} tests, {workers} workers, {python}")
    print("| engine | memory limited by | tests | responses per second | share of the bare loop |")
    print("|---|---|---|---|---|")
    groups = find_groups()
    for engine in ENGINES:
        if problem := problem_of(engine, python):
            print(f"{engine}: {problem}")
            continue
        for used in (None, groups) if groups else (None,):
            memory = f"cgroup v{used.place.version}" if used else "polling"
            with Sandboxes(engine, workers, python, Limits(), groups=used) as sandboxes:
                for form, code, tests in FORMS:
                    reference = bare(python, responses // 4, workers)
                    found = sandboxed(sandboxes, code, tests, responses)
                    share = found / reference
                    print(
                        f"| {engine} | {memory} | {form} | {found:.1f} | {share:.2f} |", flush=True
                    )


if __name__ == "__main__":
    main()
