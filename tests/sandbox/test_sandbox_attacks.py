"""Programs that try to get out of the sandbox, or to pass without the answer: none does."""

from __future__ import annotations

from functools import partial

import pytest
from attacks import ATTACKS, FUNCTION, PROGRAM, TESTS
from sandbox_helpers import PYTHON, as_user, host_state, need, settled_state

from pcl_reasoner.sandbox.cgroups import find_groups
from pcl_reasoner.sandbox.engines import Engine
from pcl_reasoner.sandbox.limits import Limits
from pcl_reasoner.sandbox.pool import Sandboxes
from pcl_reasoner.sandbox.run import Result
from pcl_reasoner.sandbox.test_cases import TestCases

LIMITS = Limits(seconds=1.0, megabytes=512)
CASES = {
    PROGRAM: TestCases(
        format="stdin",
        cases=tuple({"input": f"{n}\n", "output": f"{2 * n}\n"} for n in (3, 5)),
    ),
    FUNCTION: TestCases(
        format="functional", entry="f", cases=tuple({"args": [n], "out": 2 * n} for n in (3, 5))
    ),
    TESTS: TestCases(
        format="pytest",
        cases=(
            "from solution import f\ndouble_of_3_is = 6\nexpected = 6\ny = f(3)\n"
            "assert y == double_of_3_is\nassert f(3) == y and not y != 6\n",
            "from solution import f\n\ndef test_f():\n    assert f(5) == 10 in [f(5)]",
        ),
    ),
}
RIGHT = {
    PROGRAM: "print(2 * int(input()))",
    FUNCTION: "def f(x):\n    return 2 * x",
    TESTS: "def f(x):\n    return 2 * x",
}


def run_all(engine: Engine) -> dict[str, Result]:
    """The result of every attack, and of a right answer after all of them."""
    with Sandboxes(engine, 2, PYTHON, LIMITS, groups=find_groups()) as sandboxes:
        asked = {
            name: sandboxes.submit(code, CASES[form], stop=False)
            for name, (form, code) in ATTACKS.items()
        }
        found = {name: one.result() for name, one in asked.items()}
        return found | {form: sandboxes.test(code, CASES[form]) for form, code in RIGHT.items()}


def test_there_are_sixty_and_more() -> None:
    assert len(ATTACKS) >= 60


@pytest.mark.slow
@pytest.mark.parametrize("user", ["this user", "ordinary user"])
@pytest.mark.parametrize("engine", ["bubblewrap", "unshare"])
def test_every_attack_is_a_wrong_answer_and_the_host_is_as_it_was(
    engine: Engine, user: str
) -> None:
    before = host_state()
    need(engine)
    action = partial(run_all, engine)
    found = action() if user == "this user" else as_user(action)
    for form, code in RIGHT.items():
        assert found.pop(form).failure is None, code
    passed = [name for name, result in found.items() if result.passed == result.total]
    assert passed == []
    # Some attacks answer one number, e.g. 6; no more than that.
    assert [name for name, result in found.items() if result.passed > 1] == []
    for result in found.values():
        assert result.failure is not None
        result.failure.text.encode()  # a file can have it
    assert settled_state(before) == before
