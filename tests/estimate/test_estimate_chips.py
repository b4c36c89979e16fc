"""The chip: named by the launch file, replaced by the user, or read from a user's file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pcl_reasoner.cli.main import cli
from pcl_reasoner.core.errors import InputError
from pcl_reasoner.core.files import find, yaml_text
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.yaml_file import read_yaml
from pcl_reasoner.estimate.chips import FILE, chip_name, read_chip


def own_file(tmp_path: Path, **changes: Any) -> str:
    """A chip with half the matrix rate of the 910B, and other changes."""
    block = read_yaml(FILE)["ascend_910b"]
    block |= {"title": "half a 910B", "matrix_tera": {"float16": 150, "bfloat16": 150}}
    block["matrix_tera"]["float32"] = 40
    file = tmp_path / "half.yaml"
    file.write_text(yaml_text({"half_910b": block | changes}))
    return str(file)


def test_the_user_comes_before_the_launch_file_and_it_before_the_default() -> None:
    named = Placement(chip="ascend_910b")
    assert chip_name(None, Placement()) == "ascend_910c_die"
    assert chip_name(None, named) == "ascend_910b"
    assert chip_name("ascend_910c_die", named) == "ascend_910c_die"


def test_a_file_of_the_users_own(tmp_path: Path) -> None:
    """150 tera x the assumed 60 %; 1 600 GB/s x 70 %."""
    chip = read_chip(own_file(tmp_path), "bfloat16")
    assert (chip.name, chip.peak, chip.matrix) == ("half_910b", 150e12, 90e12)
    assert chip.memory == pytest.approx(1.12e12)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"swap_gb_s": 0}, r"half_910b.swap_gb_s: expected a number above 0, got 0"),
        ({"swap_gb_s": None}, r"half_910b.swap_gb_s: missing"),
        ({"title": 3}, r"half_910b.title: expected a text, got 3"),
        ({"memory_gib": 62.5}, r"half_910b.memory_gib: expected a whole number, got 62.5"),
        ({"assumed": 0.6}, r"half_910b.assumed: expected a mapping, got 0.6"),
        ({"matrix_tera": {"float16": 1}}, r"half_910b.matrix_tera.bfloat16: missing"),
        ({"node_gbs": 3}, r"half_910b.node_gbs: no such key. Did you mean"),
        (
            {"assumed": {"matrix": 60, "attention": 0.4, "link": 0.7, "memory": 0.7}},
            r"half_910b.assumed.matrix: expected a share, at most 1, got 60",
        ),
    ],
)
def test_a_file_that_is_wrong_is_refused(
    tmp_path: Path, changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InputError, match=problem):
        read_chip(own_file(tmp_path, **changes))


def test_a_file_of_several_chips_is_refused() -> None:
    with pytest.raises(InputError, match="expected one chip"):
        read_chip(str(FILE))


@pytest.mark.parametrize(
    ("words", "named"), [([], "half_910b"), (["--chip", "ascend_910b"], "ascend_910b")]
)
def test_a_plan_takes_the_launch_files_chip(tmp_path: Path, words: list[str], named: str) -> None:
    launch = read_yaml(find("v1_dp8_tp8_pp2", "launch"))
    launch["placement"]["chip"] = own_file(tmp_path)
    (tmp_path / "own.yaml").write_text(yaml_text(launch))
    command = ["plan", "v1_sft", "--launch", str(tmp_path / "own.yaml"), *words]
    runs = str(tmp_path / "runs")
    said = CliRunner().invoke(cli, [*command, "--runs", runs], catch_exceptions=False).output
    assert f"({named}): 16 hosts x 8 of the 8 devices of a node" in said
