"""The train stage in a cluster's layout: start, save slices, die, resume, merge. Ranks are real
processes on a CPU; MindFormers' own start and resume run as on a cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from rehearsals import cluster_config, on_ranks, stage_inputs

from pcl_reasoner.rehearse.scale import scale
from pcl_reasoner.train.config import ExportConfig, TrainConfig
from pcl_reasoner.train.stage import export, train
from pcl_reasoner.train.stopping import read_steps
from pcl_reasoner.weights.stream import read_files, weight_files

STEPS = 4
PORTS = iter(range(8410, 8490))


@pytest.fixture(scope="module", autouse=True)
def _ranks(ranks_can_run: None) -> None:
    """Ranks need g++ and the wheel that they were checked with."""


def losses(folder: Path) -> list[float]:
    return [step["loss"] for step in read_steps(folder / "metrics.jsonl")]


def run(config: TrainConfig, inputs: dict[str, Path], output: Path, hosts: Any = None) -> None:
    output.mkdir(exist_ok=True)
    with on_ranks(config, output.parent, next(PORTS), hosts) as context:
        train(config, inputs, output, context)


def run_and_kill(config: TrainConfig, inputs: dict[str, Path], output: Path) -> None:
    """Train in a process of its own; SIGKILL it, msrun and all ranks once two steps are recorded.

    The keeper of the ranks sees that its starter is gone, and ends them.
    """
    output.mkdir()
    program = (
        "import sys; from pathlib import Path; import test_train_on_ranks as tests\n"
        "from pcl_reasoner.train.config import TrainConfig\n"
        "config = TrainConfig.model_validate_json(sys.argv[1])\n"
        "inputs = {'packs': Path(sys.argv[2]), 'policy': Path(sys.argv[3])}\n"
        f"tests.PORTS = iter([{next(PORTS)}])\n"
        "tests.run(config, inputs, Path(sys.argv[4]))\n"
    )
    words = [config.model_dump_json(), inputs["packs"], inputs["policy"], output]
    here = Path(__file__).parent
    path = os.pathsep.join([str(here), str(here.parent / "helpers"), str(here.parents[1])])
    process = subprocess.Popen(
        [sys.executable, "-c", program, *map(str, words)], env={**os.environ, "PYTHONPATH": path}
    )
    until = time.monotonic() + 240
    while len(read_steps(output / "metrics.jsonl")) < 2:
        assert process.poll() is None and time.monotonic() < until
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    # The ranks end within the keeper's seconds; a step may still be written until then.
    for rank in range(config.devices):
        mark = f"{output}/work/msrun_log/worker_{rank}.log"
        assert Path(mark).exists()
    while any(str(output) in _working_folder(one) for one in Path("/proc").glob("[0-9]*")):
        assert time.monotonic() < until
        time.sleep(0.1)


def _working_folder(process: Path) -> str:
    try:
        return str((process / "cwd").readlink())
    except OSError:
        return ""


def same_weights(first: Path, second: Path) -> bool:
    names = [folder / "checkpoint" / "model.safetensors" for folder in (first, second)]
    return names[0].read_bytes() == names[1].read_bytes()


def started_and_resumed(config: TrainConfig, folder: Path) -> None:
    """A killed run that is resumed has the losses and the bytes of one that was not killed."""
    scaled = scale(config, None, 8, STEPS)
    inputs = stage_inputs(scaled, folder)
    run(scaled.config, inputs, folder / "whole")
    assert len(losses(folder / "whole")) == STEPS
    run_and_kill(scaled.config, inputs, folder / "killed")
    assert len(losses(folder / "killed")) < STEPS
    run(scaled.config, inputs, folder / "killed")
    assert losses(folder / "killed") == losses(folder / "whole")
    assert same_weights(folder / "killed", folder / "whole")


@pytest.mark.slow
def test_data_parallelism_alone_starts_resumes_and_is_exported(tmp_path: Path) -> None:
    """Optimizer states lie in slices; the exported model has the policy's tensors, all moved."""
    started_and_resumed(cluster_config(2, 1, 1, optimizer_shard=True), tmp_path)
    inputs = {"checkpoint": tmp_path / "whole", "policy": tmp_path / "policy"}
    (tmp_path / "export").mkdir()
    config = cluster_config(2, 1, 1)
    with on_ranks(config, tmp_path, 8490) as context:
        counts = export(ExportConfig(), inputs, tmp_path / "export", context)
    before = read_files(weight_files(tmp_path / "policy"))
    after = read_files(weight_files(tmp_path / "export"))
    assert counts.kept == len(before)
    assert {name: one.shape for name, one in before.items()} == {
        name: one.shape for name, one in after.items()
    }
    for name in before:
        assert b"".join(before[name].chunks()) != b"".join(after[name].chunks()), name


@pytest.mark.long
@pytest.mark.parametrize(
    ("layout", "settings"),
    [
        ((1, 2, 2), {"sequence_parallel": True}),
        ((2, 2, 2), {"sequence_parallel": True, "optimizer_shard": True}),
        ((2, 1, 1), {}),
    ],
)
def test_a_killed_run_resumes_to_the_same_losses(
    layout: tuple[int, int, int], settings: dict[str, Any], tmp_path: Path
) -> None:
    started_and_resumed(cluster_config(*layout, **settings), tmp_path)


@pytest.mark.long
def test_a_lost_worker_on_one_of_two_hosts_restarts_all(tmp_path: Path) -> None:
    """More ranks (4) than a host has devices (2): MindFormers asks whether the folder is shared."""
    scaled = scale(cluster_config(1, 2, 2), None, 8, STEPS)
    inputs = stage_inputs(scaled, tmp_path)
    run(scaled.config, inputs, tmp_path / "whole")
    output = tmp_path / "hosts"
    killer = subprocess.Popen([sys.executable, "-c", KILL_A_WORKER, str(output)])
    run(scaled.config, inputs, output, ["127.0.0.1", "127.0.0.2"])
    assert killer.wait() == 0
    assert losses(output) == losses(tmp_path / "whole")
    assert same_weights(output, tmp_path / "whole")


KILL_A_WORKER = """
import os, signal, sys, time
from pathlib import Path
folder = Path(sys.argv[1])
metrics = folder / "metrics.jsonl"
while not metrics.exists() or metrics.read_text().count("\\n") < 2:
    time.sleep(0.02)
for process in Path("/proc").glob("[0-9]*"):
    try:
        words = (process / "cmdline").read_bytes().split(b"\\0")
        inside = (process / "cwd").readlink() == folder
        environment = (process / "environ").read_bytes().split(b"\\0")
    except OSError:
        continue
    if inside and b"pcl_reasoner.worker" in words and b"RANK_ID=3" in environment:
        os.kill(int(process.name), signal.SIGKILL)
        sys.exit(0)
sys.exit("no worker was found")
"""
