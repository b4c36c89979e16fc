"""What sets the environment on a host, as a shell reads it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pcl_reasoner.core.schema import HostSettings, Placement
from pcl_reasoner.supervise.environment import environment_steps, export


@pytest.mark.parametrize("value", ["1", "two words", "$(touch gone)", "it's", "a\nb", ""])
def test_a_value_reaches_the_command_as_it_is(tmp_path: Path, value: str) -> None:
    placement = Placement(
        env={"A_1": "other"}, per_host={"localhost": HostSettings(env={"A_1": value})}
    )
    line = " && ".join([*environment_steps(placement, "localhost"), 'printf %s "$A_1"'])
    found = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, check=True)
    assert found.stdout.decode() == value
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name", ["A;touch gone;B", "$(touch gone)", "`touch gone`", "A\ntouch gone\n"]
)
def test_a_name_is_never_a_command(tmp_path: Path, name: str) -> None:
    """A launch file cannot have such a name; the shell refuses it too, and runs nothing."""
    found = subprocess.run(
        ["bash", "-c", export(name, "1")], cwd=tmp_path, capture_output=True, check=False
    )
    assert b"not a valid identifier" in found.stderr
    assert list(tmp_path.iterdir()) == []
