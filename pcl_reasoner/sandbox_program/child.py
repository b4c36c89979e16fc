"""A child process in a sandbox: one test of a candidate's program, or of the tests' own code.

program   the candidate is a program: it reads standard input and writes standard output
binary    the same, compiled
compile   the compiler
calls     the candidate's functions are called; requests and replies are lines on a channel
tester    the tests' code runs; the candidate's functions are calls to another sandbox
shared    the tests' code and the candidate's run in one interpreter
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]
import os
import resource
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

    from pcl_reasoner.sandbox_program.calls import answer_calls
    from pcl_reasoner.sandbox_program.processes import lower
    from pcl_reasoner.sandbox_program.solution import load_solution
    from pcl_reasoner.sandbox_program.tester import run_shared, run_tests

CHANNEL_IN, CHANNEL_OUT = 3, 4
RECURSION = 50_000
"""Depth of recursion; the source of LiveCodeBench's solutions expects it."""


def run_child(
    program: dict[str, Any], code: Any, start: dict[str, Any], fds: list[int]
) -> NoReturn:
    """Run one test in this process, and end the process.

    Args:
        program: The code and its language, or the tests' code; limits.
        code: The compiled code, if it is Python and can be compiled.
        start: The message that starts the test.
        fds: The child's ends of its pipes: input, output, error and, if it talks, the channel's.
    """
    exit_code = 1
    try:
        _move_descriptors(fds)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.setsid()
        _limit_resources(program["limits"], start)
        kind = start["start"]
        if kind == "compile":
            os.execv(start["argv"][0], start["argv"])
        if kind == "binary":
            os.execv("./candidate", ["candidate"])
        exit_code = _run_python(kind, program["code"], code, start)
    except BaseException:
        show_error()
    finally:
        _finish(exit_code)


def _move_descriptors(fds: list[int]) -> None:
    """Make the pipes 0, 1, 2, 3 and 4, and close every other file descriptor."""
    # In two steps, as the numbers may overlap.
    high = [os.dup2(handle, 40 + place) for place, handle in enumerate(fds)]
    for place, handle in enumerate(high):
        os.dup2(handle, place)
    os.closerange(len(fds), 256)


def _limit_resources(limits: dict[str, Any], start: dict[str, Any]) -> None:
    compiles = start["start"] == "compile"
    size = limits["megabytes"] << 20
    space = limits["compile_megabytes"] << 20 if compiles else size
    seconds = int(start["seconds"]) + 1
    lower(resource.RLIMIT_AS, space)
    lower(resource.RLIMIT_CPU, seconds)
    if start["start"] == "binary":
        # Recursive programs in C++ need it. In Python it would be the size of every thread's stack.
        lower(resource.RLIMIT_STACK, size // 2)


def _run_python(kind: str, text: str, code: Any, start: dict[str, Any]) -> int:
    """Run Python code; return the exit code."""
    sys.setrecursionlimit(RECURSION)
    if hasattr(sys, "set_int_max_str_digits"):
        sys.set_int_max_str_digits(0)
    sys.argv = start.get("argv", ["solution.py"])
    if kind == "calls":
        return answer_calls(lambda: load_solution(text, code), CHANNEL_IN, CHANNEL_OUT)
    if kind == "tester":
        return run_tests(start["code"], CHANNEL_IN, CHANNEL_OUT)
    if kind == "shared":
        return run_shared(text, start["code"], CHANNEL_IN, CHANNEL_OUT)
    module = type(sys)("__main__")
    # The old module stays referenced: to free its names would cost more than a small program.
    module_before = sys.modules["__main__"]
    sys.modules["__main__"] = module
    found = run_to_exit(lambda: exec(code or compile(text, "solution.py", "exec"), vars(module)))
    del module_before
    return found


def show_error() -> None:
    """Write the exception that is being handled to standard error."""
    # Imported here: most programs raise none, and it imports much.
    import traceback

    traceback.print_exc()


def run_to_exit(action: Callable[[], object]) -> int:
    """Run code; return its exit code, as Python does for a program."""
    try:
        action()
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return error.code or 0
        sys.stderr.write(f"{error.code}\n")
        return 1
    except BaseException:
        show_error()
        return 1
    return 0


def _finish(code: int) -> NoReturn:
    """End the process: wait for its threads, call what is registered, and write what is left."""
    try:
        if "threading" in sys.modules:
            sys.modules["threading"]._shutdown()
        if "atexit" in sys.modules:
            sys.modules["atexit"]._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        code = code or 1
    os._exit(code & 255)
