"""All rules: when they apply, that they are quick, and that the shipped files pass them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from preflight_helpers import own_launch, verdict

from pcl_reasoner.core import files
from pcl_reasoner.preflight.rules import RULES


def test_what_can_be_known_only_at_the_start_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setattr("pcl_reasoner.preflight.machines._has_npu", lambda: False)
    assert verdict("am_thinking_v1", "atlas_910c_rl").errors == []
    assert verdict(
        "am_thinking_v1",
        "atlas_910c_rl",
        here=True,
        to_run={"am_thinking_v1/revise", "am_thinking_v1/rl_1"},
    ).errors == [
        "https://api.openai.com/v1 needs a key, but OPENAI_API_KEY is not set: export "
        "OPENAI_API_KEY=KEY.",
        "stage am_thinking_v1/rl_1: trains on several hosts, whose processes wait for the rounds "
        "that this process makes. Give --start ssh.",
    ]
    assert verdict("v1_sft", "one_node_7b", here=True).errors == [
        "v1_sft/train and v1_sft/prove: device is Ascend, and this machine has no NPU (no "
        "/dev/davinci*, no npu-smi). Start the run on an Ascend host, name the hosts in the "
        "launch file and give --start ssh, or take a launch file for a CPU, e.g. --launch "
        "laptop. --until pack ends before it."
    ]
    assert verdict("v1_sft", "one_node_7b", until="pack", here=True).errors == []


def test_finished_stages_are_not_checked(tmp_path: Path) -> None:
    launch = own_launch(tmp_path, "atlas_910c_16x8", sampling=None, judge_urls=None)
    later = {"v15_opg/train", "v15_opg/export"}
    assert verdict("v15_opg", launch, to_run=later).errors == []
    assert len(verdict("v15_opg", launch, to_run={*later, "v15_opg/grade"}).errors) == 1


def test_stages_after_until_are_not_checked(tmp_path: Path) -> None:
    launch = own_launch(tmp_path, "atlas_910c_16x8", sampling=None)
    wrong = ("pack.seq_length=16384", "train.loss=grpo")
    assert verdict("v15_opg", launch, *wrong, until="unique").errors == []


def test_every_rule_has_a_test() -> None:
    """A rule that these tests never break would be one that nobody has seen work."""
    texts = [one.read_text(encoding="utf-8") for one in Path(__file__).parent.glob("test_*.py")]
    assert len(RULES) == len({rule.check for rule in RULES.values()}) > 30
    assert all(rule.check.__doc__ for rule in RULES.values())
    assert sum(text.count("def test_") for text in texts) > len(RULES) // 2


def test_no_heavy_package_is_imported_to_refuse(tmp_path: Path) -> None:
    code = (
        "import sys; from pcl_reasoner.cli.main import main; "
        "assert main(['validate', 'v15_opg', 'grade.prompt=/none.txt', 'train.loss=grpo']) == 2; "
        "heavy = {'torch', 'mindspore', 'numpy', 'pyarrow', 'tokenizers', 'httpx', 'jinja2'}; "
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=files.PACKAGE.parent)


SHIPPED = [
    (recipe, launch.stem)
    for recipe in ("v1_sft", "v15_opg", "am_thinking_v1")
    for launch in sorted(files.shipped("launch").glob("*.yaml"))
]
UNTIL = {"atlas_910c_teacher": "sample_sft"}
"""The last stage of am_thinking_v1 that a launch file is for; rl needs hosts that only sample."""


@pytest.mark.parametrize(("recipe", "launch"), SHIPPED)
def test_shipped_recipes_are_right_with_shipped_launch_files(recipe: str, launch: str) -> None:
    until = None
    if recipe == "am_thinking_v1" and launch not in ("laptop", "two_hosts_cpu", "atlas_910c_rl"):
        until = UNTIL.get(launch, "export")
    found = verdict(recipe, launch, until=until)
    assert found.errors == []
    # In the twin for Slurm a person starts the servers, also on the hosts that train.
    urls = ("placement.sampling: ", "placement.judging: ")
    by_hand = [one for one in found.warnings if one.startswith(urls)]
    assert found.warnings == (by_hand if launch.endswith("_slurm") else [])
