"""The scripts of two hosts, run for real: msrun, MindSpore on a CPU, gradients over both."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pcl_reasoner.core.files import find, yaml_text
from pcl_reasoner.core.yaml_file import read_yaml

pytestmark = pytest.mark.slow

PROGRAMS = Path(sys.executable).parent


def environment(folder: Path, **more: str) -> dict[str, str]:
    path = f"{PROGRAMS}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "HF_HUB_OFFLINE": "1", "PCLR_RUNS": str(folder), **more}


def pclr(folder: Path, launch: Path) -> subprocess.CompletedProcess[str]:
    words = ["train.max_steps=3", "train.checkpoint_steps=3", "--until", "train"]
    command = [
        sys.executable,
        "-m",
        "pcl_reasoner.cli",
        "run",
        "v1_sft",
        "--launch",
        str(launch),
    ]
    return subprocess.run(
        [*command, *words], env=environment(folder), capture_output=True, text=True
    )


def other_machine(folder: Path) -> str:
    """A PATH on which `ip` names no address: msrun takes the host for another than the master's.

    Both hosts are this machine, and it would start a second scheduler for the second.
    """
    folder.mkdir()
    (folder / "ip").write_text("#!/bin/sh\necho '[]'\n")
    (folder / "ip").chmod(0o755)
    return f"{folder}:{PROGRAMS}:{os.environ['PATH']}"


def test_two_hosts_train_by_their_scripts_and_the_run_goes_on_behind_them(tmp_path: Path) -> None:
    launch = read_yaml(find("two_hosts_cpu", "launch"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        launch["placement"]["master_port"] = free.getsockname()[1]
    own = tmp_path / "own.yaml"
    own.write_text(yaml_text(launch))
    runs = tmp_path / "all runs"
    first = pclr(runs, own)
    folder = runs / "v1_sft" / "launch" / "train"
    assert first.returncode == 1, first.stderr
    assert f"scripts of v1_sft/train, 2 hosts: {folder}" in first.stdout
    scripts = [folder / "host_00_127.0.0.1.sh", folder / "host_01_127.0.0.2.sh"]
    paths = [environment(runs)["PATH"], other_machine(tmp_path / "bin")]
    started = [
        subprocess.Popen(
            ["bash", str(script)],
            env=environment(runs, PATH=path),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for script, path in zip(scripts, paths, strict=True)
    ]
    assert [process.wait(timeout=300) for process in started] == [0, 0]
    second = pclr(runs, own)
    assert second.returncode == 0, second.stderr
    [metrics] = (runs / "v1_sft").glob("train-*/metrics.jsonl")
    steps = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert [one["step"] for one in steps] == [1, 2, 3]
    # The first is near ln 512, a guess among the vocabulary, and they fall.
    assert steps[0]["loss"] == pytest.approx(6.24, abs=0.5)
    assert steps[-1]["loss"] < steps[1]["loss"] < steps[0]["loss"]
    # What the ranks logged is no part of the artifact.
    assert not (metrics.parent / "work").exists() and not (metrics.parent / "output").exists()
