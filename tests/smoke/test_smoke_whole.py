"""The command ``smoke`` on this machine: the whole path, faults, an interruption, a real vLLM."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from vllm_helpers import serving, wait_for

from pcl_reasoner.smoke.smoke import PARTS

ROOT = Path(__file__).resolve().parent.parent.parent
PCLR = str(Path(sys.executable).with_name("pclr-ms"))
OTHER_BASE = '{"rope_parameters": {"rope_theta": 1000000.0, "rope_type": "default"}}'
WITHOUT_VLLM = not os.environ.get("PCLR_VLLM")
WHY = "PCLR_VLLM is not set: the path of vllm, or of python, in an environment that has vLLM"


def command(folder: Path, *words: str) -> list[str]:
    runs, output = str(folder / "runs"), str(folder / "smoke.json")
    return [PCLR, "smoke", "--runs", runs, "--output", output, *words]


def called(folder: Path, *words: str) -> tuple[int, str, dict[str, Any]]:
    """Exit code, what it printed, and the report."""
    done = subprocess.run(command(folder, *words), cwd=ROOT, capture_output=True, text=True)
    assert "Traceback" not in done.stderr, done.stderr
    report = json.loads((folder / "smoke.json").read_text())
    return done.returncode, done.stdout + done.stderr, report


def part(report: dict[str, Any], name: str) -> dict[str, Any]:
    return next(one for one in report["parts"] if one["name"] == name)


def statuses(report: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["status"] for one in report["parts"]}


def processes_with(folder: Path) -> list[int]:
    """Processes of this machine whose working folder is in a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if str(folder) in str((path / "cwd").readlink()):
                found.append(int(path.name))
        except OSError:
            continue
    return found


@pytest.mark.slow
def test_the_whole_path_on_a_laptop_and_then_nothing_again(tmp_path: Path) -> None:
    code, said, report = called(tmp_path)
    assert code == 0, said
    assert set(statuses(report).values()) == {"ok"} and list(statuses(report)) == list(PARTS)
    train, resume = part(report, "train")["measured"], part(report, "resume")["measured"]
    # Killed two steps after the save of step 10, perhaps one later; 20 steps in all.
    assert train["saved_step"] == resume["resumed_from"] == 10
    assert 12 <= train["steps_until_killed"] == len(train["losses"]) < 20
    assert len(train["losses"]) + len(resume["losses"]) == 20
    assert train["processes"] >= 3  # the command, a keeper, the training
    assert train["seconds_until_all_ended"] < 120 and not processes_with(tmp_path)
    assert part(report, "prove")["checks"][0]["error"] < 1e-4
    assert part(report, "answers")["measured"]["tokens"] > 30
    told = {one["assumption"] for one in report["plan"]["assumptions"]}
    assert {"matrix: share of its peak", "resume", "first start"} <= told
    assert any("on a CPU" in note for note in report["plan"]["notes"])
    text = (tmp_path / "smoke.json").read_text()
    assert str(tmp_path) not in text and str(ROOT) not in text
    # What was ok is not run again, and the report is the same.
    log = tmp_path / "runs" / "smoke" / "smoke" / "train.log"
    written = log.stat().st_mtime_ns
    code, _, again = called(tmp_path)
    assert code == 0 and again["parts"] == report["parts"]
    assert log.stat().st_mtime_ns == written


@pytest.mark.long
def test_a_proof_that_fails_is_told_and_stops_the_answers(tmp_path: Path) -> None:
    settings = ["prove.limits={mean: 1.0e-9, p99: 1.0e-9, largest: 1.0e-9}", "prove.suspects=false"]
    code, said, report = called(tmp_path, *settings)
    assert code == 1
    assert statuses(report)["prove"] == "wrong" and statuses(report)["answers"] == "not run"
    assert "does not compute what the trained checkpoint computes" in part(report, "prove")["why"]
    assert "prove  " in said and "does not compute" in said


@pytest.mark.long
def test_training_that_ends_too_early_and_a_folder_that_is_no_model(tmp_path: Path) -> None:
    code, said, report = called(tmp_path, "train.max_steps=11", "train.checkpoint_steps=11")
    assert code == 1
    assert "ended before it could be killed" in part(report, "train")["why"]
    assert statuses(report)["resume"] == statuses(report)["answers"] == "not run"
    assert part(report, "resume")["why"] == "needs train"
    assert "training did not end: no assumption" in said
    empty = tmp_path / "empty"
    empty.mkdir()
    code, said, report = called(tmp_path, "--model", str(empty))
    assert code == 1
    assert statuses(report)["weights"] == "wrong" and statuses(report)["train"] == "not run"
    assert f"{empty}: no safetensors file" in said and "smoke/smoke/*.log" in said
    assert str(tmp_path) not in (tmp_path / "smoke.json").read_text()
    done = subprocess.run(command(tmp_path, "--model", "nowhere"), cwd=ROOT, capture_output=True)
    assert done.returncode == 2 and b"nowhere: no such folder" in done.stderr


@pytest.mark.long
def test_it_is_interrupted_or_killed_and_goes_on(tmp_path: Path) -> None:
    def is_training(since: float) -> bool:
        files = (tmp_path / "runs" / "smoke").glob("train-*.partial/metrics.jsonl")
        return any(file.stat().st_mtime > since for file in files)

    for number, wanted in ((signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)):
        began = time.time()
        process = subprocess.Popen(
            command(tmp_path), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        wait_for(partial(is_training, began), 120)
        process.send_signal(number)
        assert process.wait(120) == wanted
        wait_for(lambda: not processes_with(tmp_path), 60)
    code, said, report = called(tmp_path)
    assert code == 0, said
    assert part(report, "train")["measured"]["steps_until_killed"] >= 12


@pytest.mark.long
@pytest.mark.skipif(WITHOUT_VLLM, reason=WHY)
def test_with_a_real_vllm_and_with_one_that_has_another_rotary_base(tmp_path: Path) -> None:
    launch = yaml.safe_load((ROOT / "launch" / "laptop.yaml").read_text())
    launch["name"] = "laptop_vllm"
    launch["hashed"] |= {"evaluate": {"engine": "server"}}
    launch["hashed"]["prove"] |= {"engine": "server"}
    launch["placement"]["sampling"] = serving()
    file = tmp_path / "laptop_vllm.yaml"
    file.write_text(yaml.safe_dump(launch))
    code, said, report = called(tmp_path, "--launch", str(file))
    assert code == 0, said
    proof, answers = part(report, "prove"), part(report, "answers")["measured"]
    assert proof["measured"]["engine"] == "server" and proof["measured"]["server_version"]
    assert proof["checks"][0]["error"] < 1e-4
    assert answers["servers"] == 1 and answers["start_seconds"] > 1
    # The servers of the answers were compared with the proof, too.
    (scores,) = (tmp_path / "runs" / "smoke").glob("evaluate-*/scores.json")
    (compared,) = json.loads(scores.read_text())["responses"]["compared"]
    assert compared["mean"] < 1e-4 and compared["restarts"] == 0
    told = {one["assumption"] for one in report["plan"]["assumptions"]}
    assert {"start of a server", "a token of each answer"} <= told
    launch["placement"]["sampling"]["arguments"] += ["--hf-overrides", OTHER_BASE]
    file.write_text(yaml.safe_dump(launch))
    code, said, report = called(tmp_path, "--launch", str(file))
    assert code == 1
    assert statuses(report)["prove"] == "wrong"
    assert "rotary base 1e+06" in part(report, "prove")["why"]


@pytest.mark.long
def test_two_hosts_of_one_process_each(tmp_path: Path) -> None:
    code, said, report = called(tmp_path, "--launch", "two_hosts_cpu", "--start", "local")
    assert code == 0, said
    assert report["layout"]["data_parallel"] == 2
    assert part(report, "train")["measured"]["processes"] >= 7
