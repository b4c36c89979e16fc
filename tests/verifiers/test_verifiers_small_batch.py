"""A few responses of several kinds, graded at once."""

from __future__ import annotations

import pytest
from sandbox_helpers import PYTHON, need

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.sandbox.limits import Limits
from pcl_reasoner.sandbox.pool import Sandboxes
from pcl_reasoner.verifiers.small_batch import Answered, grade_batch

TESTS = {"tests": {"format": "assert", "cases": ["assert f(3) == 6", "assert f(0) == 0"]}}
WORDS = {"instructions": [{"id": "punctuation:no_comma", "kwargs": {}}]}


def answered(kind: str, text: str, reason: str = "stop") -> Answered:
    checks = {"code": TESTS, "instruction": WORDS}.get(kind, {})
    return Answered("p", kind, "8" if kind == "math" else "", checks, text, reason)


def test_each_kind_in_its_own_way() -> None:
    need("unshare")
    code = "<think>x</think>```python\ndef f(x):\n    return {}\n```"
    batch = [
        answered("code", code.format("2 * x")),
        answered("code", code.format("6")),
        answered("code", "<think>x</think>no"),
        answered("code", "<think>x", "length"),
        answered("math", "<think>x</think>\\boxed{8}"),
        answered("instruction", "<think>x</think>dog cat"),
        answered("instruction", "<think>x</think>dog, cat"),
    ]
    with Sandboxes("unshare", 2, PYTHON, Limits()) as sandboxes:
        found = grade_batch(batch, sandboxes)
    outcomes = [one.outcome for one in found]
    assert outcomes == [
        *("correct", "incorrect", "no_code", "unfinished"),
        *("correct", "correct", "incorrect"),
    ]
    assert [one.reward for one in found] == [1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0]


def test_a_kind_that_needs_a_model_is_refused() -> None:
    with pytest.raises(StageError, match="kind 'chat', expected one of math, science, code"):
        grade_batch([answered("chat", "<think>x</think>hello")], None)
