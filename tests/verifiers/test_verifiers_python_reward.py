"""A reward of the user's own whose file or function is not what it should be."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from log_helpers import rewrite

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.sandbox.config import SandboxConfig
from pcl_reasoner.verifiers.logs import REWARD_LOG
from pcl_reasoner.verifiers.python_reward import Asked, Rewarded, reward_all
from pcl_reasoner.verifiers.python_reward_config import PythonRewardConfig

KEY = ("p", 3)


def rewarded(tmp_path: Path, code: str | None, **changes: Any) -> Rewarded:
    """What a file gives for one response; None: there is no file."""
    file = tmp_path / "reward.py"
    if code is not None:
        file.write_text(code)
    config = PythonRewardConfig(file=str(file), **changes)
    asked = [Asked(KEY, "Greet Ben.", "</think>Hi Ben.", "", None)]
    context = StageContext("grade", tmp_path / "quarantined.jsonl")
    (tmp_path / REWARD_LOG).unlink(missing_ok=True)
    found = reward_all(config, SandboxConfig(seconds=1.0), asked, 1, tmp_path, context)
    return found.rewards[KEY]


WRONG = {
    "absent": (None, r"reward.py: the reward's file cannot be read .* Correct python.file"),
    "no function": ("def rewrad(*a): return 1", r"no (function |attribute ')reward"),
    "looks for a key": ("{}['x']\ndef reward(*a): return 1", "KeyError: 'x'"),
    "does not load": ("import no_such_module", "No module named 'no_such_module'"),
    "raises": ("def reward(*a): return 1 / 0", "response p/3: .*ZeroDivisionError"),
    "ends": ("import sys\ndef reward(*a): sys.exit(0)", "response p/3: .*SystemExit: 0"),
    "ends at once": ("import sys\nsys.exit(0)", "SystemExit: 0"),
    "NaN": ("def reward(*a): return float('nan')", r"got nan, expected a number in \[0, 1\]"),
    "2.0": ("def reward(*a): return 2.0", "response p/3: got 2.0, expected a number"),
    "text": ("def reward(*a): return '1'", "got '1', expected a number"),
    "None": ("def reward(*a): pass", "got None, expected a number"),
    "huge": ("def reward(*a): return 10 ** 5000", "got a value of the type int, expected"),
}


@pytest.mark.parametrize("sandboxed", [True, False])
@pytest.mark.parametrize("name", WRONG)
def test_one_sentence_says_where_and_what(tmp_path: Path, name: str, sandboxed: bool) -> None:
    code, message = WRONG[name]
    with pytest.raises(StageError, match=message) as caught:
        rewarded(tmp_path, code, sandboxed=sandboxed)
    assert str(tmp_path / "reward.py") in str(caught.value)
    assert "Correct " in str(caught.value)


def test_a_function_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    with pytest.raises(StageError, match="response p/3: time. Correct the function"):
        rewarded(tmp_path, "def reward(*a):\n    while True: pass")


@pytest.mark.parametrize("value", ["True", "0", "numpy.float32(0.5)", "fractions.Fraction(1, 4)"])
def test_any_real_number_is_a_reward(tmp_path: Path, value: str) -> None:
    code = f"import fractions, numpy\ndef reward(*a): return {value}, 'so'"
    expected = {"True": 1.0, "0": 0.0, "numpy.float32(0.5)": 0.5}.get(value, 0.25)
    assert rewarded(tmp_path, code, sandboxed=False) == Rewarded(expected, "so")


@pytest.mark.parametrize("sandboxed", [True, False])
def test_a_few_responses_are_read_at_a_time_and_none_is_rewarded_twice(
    tmp_path: Path, sandboxed: bool
) -> None:
    """The eleventh call fails; the next run calls for the rest only."""
    file = tmp_path / "reward.py"
    file.write_text("def reward(problem, response, *rest): return int(response) / 20")
    config = PythonRewardConfig(file=str(file), sandboxed=sandboxed)
    placement = Placement(sandbox={"workers": 1})
    context = StageContext("grade", tmp_path / "quarantined.jsonl", placement)
    read: list[int] = []
    ahead: list[int] = []

    def responses(wrong: bool) -> Iterator[Asked]:
        for number in range(20):
            text = "x" if wrong and number == 10 else str(number)
            lines = (tmp_path / REWARD_LOG).read_bytes().count(b"\n")
            read.append(number)
            ahead.append(number + 2 - lines)
            yield Asked(("p", number), "", text, "", None)

    with pytest.raises(StageError, match="response p/10: .*ValueError"):
        reward_all(config, SandboxConfig(), responses(True), 20, tmp_path, context)
    # One worker: four are read before the first is done.
    assert max(ahead) <= 4 and len(read) <= 10 + 4
    kept = (tmp_path / REWARD_LOG).read_text().splitlines()
    assert len(kept) >= 1 + 10 - 4
    found = reward_all(config, SandboxConfig(), responses(False), 20, tmp_path, context)
    assert found.rewards == {("p", n): Rewarded(n / 20) for n in range(20)}
    again = (tmp_path / REWARD_LOG).read_text().splitlines()
    assert again[: len(kept)] == kept and len(again) == 1 + 20


def test_rewards_of_another_interpreter_are_given_again(tmp_path: Path) -> None:
    file = tmp_path / "reward.py"
    file.write_text("def reward(*a): return 1")
    config = PythonRewardConfig(file=str(file), sandboxed=False)
    context = StageContext("grade", tmp_path / "quarantined.jsonl")
    asked = [Asked(KEY, "", "", "", None)]
    found = reward_all(config, SandboxConfig(), asked, 1, tmp_path, context)
    log = tmp_path / REWARD_LOG
    first = json.loads(log.read_text().splitlines()[0])["answered_by"]
    assert first == found.described
    assert (first["engine"], first["python"]) == ("this process", sys.executable)
    rewrite(log, {"this process": "bubblewrap", "1.0": "0.5"})
    assert reward_all(config, SandboxConfig(), asked, 1, tmp_path, context).rewards == {
        KEY: Rewarded(1.0)
    }
    (warning,) = context.warnings
    assert "rewards.partial.jsonl was left by a run with bubblewrap" in warning
