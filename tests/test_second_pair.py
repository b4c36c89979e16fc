"""The laptop's recipes and a rehearsal with MindSpore 2.9 and MindFormers 1.9."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

SECOND = os.environ.get("PCLR_SECOND")


@pytest.fixture(scope="module")
def program() -> Path:
    """``pclr-ms`` of the second environment."""
    if SECOND is None:
        pytest.skip("PCLR_SECOND names no Python with MindSpore 2.9: make test-all installs it")
    return Path(SECOND).with_name("pclr-ms")


@pytest.mark.long
def test_v15s_layout_is_rehearsed(program: Path, tmp_path: Path) -> None:
    words = [program, "rehearse", "v15_opg", "--launch", "atlas_910c_16x8", "--steps", "2"]
    done = subprocess.run([*words, "--runs", tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "v15_opg/rehearsal/train/rehearsal.json").read_text())
    assert found["versions"] == {"mindspore": "2.9.0", "mindformers": "1.9.0"}
    assert found["worst"]["gradient"] < found["limits"]["gradient"]


@pytest.mark.long
def test_both_recipes_run_and_the_policy_improves(program: Path, tmp_path: Path) -> None:
    """V1.5's recipe runs V1's first: raw Parquet to a report, 2 to 3 minutes."""
    doctor = subprocess.run([program, "doctor"], capture_output=True, text=True, cwd=tmp_path)
    assert doctor.returncode == 0, doctor.stdout
    assert "2.9.0 with 1.9.0" in doctor.stdout
    words = [program, "run", "v15_opg", "--runs", tmp_path / "runs"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    scores = []
    for name in ("evaluate_before", "evaluate_after"):
        (folder,) = (tmp_path / "runs" / "v15_opg").glob(f"{name}-*")
        values = json.loads((folder / "scores.json").read_text())
        scores.append(next(iter(values["benchmarks"].values()))["avg_at_n"])
    assert scores[1] > scores[0] + 0.1
