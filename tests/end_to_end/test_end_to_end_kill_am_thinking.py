"""AM-Thinking-v1's data stages, killed over and over: the same bytes as without a kill.

Beside the recipe's own stages it grades: the teacher's programs in the sandbox, greetings by a
function of the user's own. About 45 s on two cores.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from completion_server import CompletionServer
from end_to_end_helpers import (
    MARK,
    assert_no_process_left,
    command,
    environment,
    manifests,
    payload,
)
from sandbox_helpers import need
from test_end_to_end_kill import Moment, cut_off, in_commit, lines, there

from pcl_reasoner.core import files
from pcl_reasoner.core.yaml_file import read_yaml
from pcl_reasoner.runner.copying import copy

pytestmark = [pytest.mark.slow, pytest.mark.long]

NAME = "am_thinking_v1"
LAST = "tokenize"
"""The last of the recipe's own stages that is run."""
SIZES = {
    "math_problems": 60,
    "code_problems": 40,
    "instruction_problems": 10,
    "chat_problems": 10,
    "benchmark_problems": 10,
    "planted": 4,
}
ADDED: dict[str, dict[str, Any]] = {
    "grade_truth": {
        "stage": "grade",
        "inputs": {"responses": "sample_truth", "problems": "check_tests"},
    },
    "pass_rate": {"inputs": {"problems": "check_tests", "verdicts": "grade_truth"}},
    "grade": {"inputs": {"responses": "sample_sft", "problems": "revise"}},
}
REWARD = "def reward(problem, response, truth, checks):\n    return min(len(response) / 200, 1)\n"


class ThirdModel(CompletionServer):
    """Answers slowly, and 5 whatever the question is."""

    def completion(self, body: dict[str, Any]) -> dict[str, Any]:
        time.sleep(0.2)
        message = {"role": "assistant", "content": "<think>so</think>\\boxed{5}"}
        return {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}


@pytest.fixture
def third() -> Iterator[ThirdModel]:
    server = ThirdModel()
    server.models = [{"id": "o4-mini", "max_model_len": 99999}]
    yield server
    server.stop()


def write(folder: Path, url: str) -> tuple[Path, Path]:
    """The small recipe, whose third model is asked, and its launch file."""
    copy(NAME, folder / f"{NAME}.yaml", force=True)
    recipe, profile = folder / f"{NAME}.yaml", folder / "profiles" / f"{NAME}_laptop.yaml"
    value = read_yaml(recipe)
    value["stages"] = dict([*_until(LAST, value["stages"]), *ADDED.items()])
    value["choices"] = {
        name: choice
        for name, choice in value["choices"].items()
        if all(key.split(".")[0] in value["stages"] for key in _keys(choice))
    }
    (folder / "reward.py").write_text(REWARD)
    value["stages"]["grade"] |= {
        "python": {"file": str(folder / "reward.py")},
        "kinds": {
            "math": "answer",
            "code": "tests",
            "instruction": "instructions",
            "chat": "python",
        },
    }
    recipe.write_text(yaml.safe_dump(value, sort_keys=False))
    laptop = read_yaml(profile)
    laptop["stages"] = dict(_until(LAST, laptop["stages"]))
    laptop["stages"]["synthetic"] |= SIZES
    laptop["stages"]["revise"] = {"opinion_concurrency": 1}
    profile.write_text(yaml.safe_dump(laptop, sort_keys=False))
    launch = folder / "launch.yaml"
    placement = read_yaml(files.shipped("launch") / "laptop.yaml")
    placement["placement"]["opinion_urls"] = [url]
    launch.write_text(yaml.safe_dump(placement))
    return recipe, launch


def _keys(choice: dict[str, Any]) -> list[str]:
    """The settings that the options of a choice set, e.g. ``revise.disputed``."""
    options = (option for option in choice.values() if isinstance(option, dict))
    return [key for option in options for key in option]


def _until(last: str, stages: dict[str, Any]) -> list[tuple[str, Any]]:
    place = list(stages).index(last)
    return list(stages.items())[: place + 1]


def moments() -> list[Moment]:
    """In the order of the stages."""
    return [
        there(f"{NAME}/mix-*.partial"),
        in_commit("half_manifest", f"{NAME}/mix"),
        lines(f"{NAME}/check_tests-*.partial/tests.partial.jsonl", 3),
        lines(f"{NAME}/check_tests-*.partial/tests.partial.jsonl", 20),
        in_commit("whole_manifest", f"{NAME}/check_tests"),
        lines(f"{NAME}/revise-*.partial/opinions.partial.jsonl", 4),
        lines(f"{NAME}/revise-*.partial/opinions.partial.jsonl", 9),
        in_commit("half_manifest", f"{NAME}/revise"),
        there(f"{NAME}/perplexity-*.partial/work/*"),
        there(f"{NAME}/perplexity-*.partial/responses"),
        in_commit("whole_manifest", f"{NAME}/perplexity"),
        there(f"{NAME}/tidy-*.partial/responses"),
        in_commit("renamed", f"{NAME}/tidy"),
        there(f"{NAME}/tokenize-*.partial"),
        in_commit("half_manifest", f"{NAME}/pass_rate"),
        lines(f"{NAME}/grade-*.partial/tests.partial.jsonl", 5),
        lines(f"{NAME}/grade-*.partial/tests.partial.jsonl", 25),
        in_commit("whole_manifest", f"{NAME}/grade"),
    ]


def test_the_same_bytes_as_without_a_kill(third: ThirdModel, tmp_path: Path) -> None:
    need("unshare")
    recipe, launch = write(tmp_path, third.url)
    words = ("--launch", str(launch))
    whole, runs = tmp_path / "whole", tmp_path / "runs"

    def run(folder: Path) -> None:
        answer = subprocess.run(
            command("run", recipe, "--runs", folder, *words),
            env=environment(**{MARK: str(folder)}),
            capture_output=True,
            text=True,
        )
        assert (answer.returncode, answer.stderr) == (0, ""), answer.stdout
        assert_no_process_left(str(folder))

    run(whole)
    asked = len(third.asked)
    assert asked == 12  # as many ground truths are disputed
    for moment in moments():
        began = time.monotonic()
        cut_off(moment, recipe, runs, *words)
        print(f"{moment.name}: {time.monotonic() - began:.1f} s")
    run(runs)
    # A question that was on its way is asked again; what was answered is not.
    assert asked <= len(third.asked) - asked <= asked + 2
    assert not list(runs.glob("*/*.partial"))
    assert payload(runs) == payload(whole)
    counts = [
        {title: one["counts"] for title, one in manifests(folder).items()}
        for folder in (runs, whole)
    ]
    assert counts[0] == counts[1]
