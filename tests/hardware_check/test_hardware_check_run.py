"""The command for real, on this CPU, with one figure planted that is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pcl_reasoner.cli.main import main
from pcl_reasoner.hardware_check.check import FIGURES
from pcl_reasoner.hardware_check.parts import PARTS
from pcl_reasoner.losses import VARIANTS

pytestmark = pytest.mark.long

NOT_HERE = {"tensor_pipeline", "layers"}


def test_all_is_fine_but_the_planted_figure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = json.loads(FIGURES.read_text())
    # Twice what is allowed in float32.
    figures["training"]["loss"][2] *= 1 + 2e-5
    planted, file = tmp_path / "figures.json", tmp_path / "check.json"
    planted.write_text(json.dumps(figures))
    words = ["--device", "CPU", "--figures", str(planted), "--output", str(file), "--limit", "600"]
    assert main(["hardware-check", *words]) == 1
    assert "1 x CPU: 4 ok, 2 wrong, 2 not run" in capsys.readouterr().out

    parts = {part["name"]: part for part in json.loads(file.read_text())["parts"]}
    assert list(parts) == list(PARTS)
    assert {name for name, part in parts.items() if part["status"] == "not run"} == NOT_HERE
    for name in NOT_HERE:
        assert parts[name]["why"]
    wrong = {
        (name, check["name"])
        for name, part in parts.items()
        for check in part["checks"]
        if not check["ok"]
    }
    assert wrong == {(name, "loss, step 3") for name in ("training", "data_parallel")}
    assert len(parts["losses"]["checks"]) == 2 * len(VARIANTS)
    assert parts["kernels"]["measured"]["attention"] == "CpuFlashAttentionScore"
    assert parts["data_parallel"]["measured"]["ranks"] == 2
    for name in ("training", "data_parallel"):
        measured = parts[name]["measured"]
        assert 0 < measured["step_seconds"] < measured["first_step_seconds"]
        assert measured["peak_memory_bytes"] > 100_000_000
    assert str(Path.home()) not in file.read_text() and str(tmp_path) not in file.read_text()
