"""The train stage on the hosts of a launch file: what it gives to them, and what stays of them."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from train_helpers import train_config, write_packs, write_policy

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.hosts.view import RANK_TIMES, read_rank_times
from pcl_reasoner.train import on_hosts
from pcl_reasoner.train.stage import train
from pcl_reasoner.weights.stream import read_files

SIZES = [5, 9, 14, 20, 7, 25]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("inputs")
    return {
        "policy": write_policy(folder / "policy"),
        "packs": write_packs(folder / "packs", SIZES),
    }


def context(folder: Path, start: str | None = None, **placement: Any) -> StageContext:
    return StageContext("train", folder / "apart", Placement(**placement), start=start)


def test_as_many_devices_as_ranks(tmp_path: Path, inputs: dict[str, Path]) -> None:
    output = tmp_path / "train.partial"
    output.mkdir()
    given = context(tmp_path, "local", hosts=["127.0.0.1", "127.0.0.2"], devices_per_host=2)
    with pytest.raises(StageError, match=r"= 2 ranks for 2 hosts x 2 devices = 4. Make them equal"):
        train(train_config(data_parallel=2), inputs, output, given)


def test_a_job_has_the_stages_facts(
    tmp_path: Path, inputs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the first step here; from step 2 with a start that left metrics and no checkpoint."""
    output = tmp_path / "train-1a2b.partial"
    output.mkdir()
    seen: list[Any] = []
    monkeypatch.setattr(on_hosts, "run_job", lambda job, progress: seen.append(job) or [])
    given = context(tmp_path, "ssh", hosts=["a", "b"], env={"OWN": "1"})
    with pytest.raises(StageError, match="training left no complete checkpoint"):
        train(train_config(data_parallel=2), inputs, output, given)
    [job] = seen
    assert (job.how, job.placement.hosts) == ("ssh", ["a", "b"])
    assert job.logs == tmp_path / "logs" / "train-1a2b"
    assert job.placement.log_dir == "work/msrun_log"
    assert job.env["PCL_DIE_WITH_PARENT"] == "1"
    assert job.env["LOG_MF_PATH"] == str(output / "work" / "log")
    assert "OWN" not in job.env  # the placement has it, over these
    assert job.steps == json.loads((output / "data_order.json").read_text())["steps"]
    assert job.prepare() == 0
    assert job.stopped == output / "stopped.txt"


def test_a_checkpoint_is_weights_and_two_moments_of_every_copy(inputs: dict[str, Path]) -> None:
    tensors = read_files([inputs["policy"] / "model.safetensors"]).values()
    values = sum(tensor.size // 4 for tensor in tensors)
    for config, copies in (
        (train_config(), 1),
        (train_config(data_parallel=2), 2),
        (train_config(data_parallel=2, optimizer_shard=True, device="Ascend"), 1),
    ):
        found = on_hosts.checkpoint_bytes(config, inputs["policy"])
        assert found == values * 12 * copies


def test_logs_of_hosts_started_by_hand_are_kept_elsewhere(tmp_path: Path) -> None:
    output = tmp_path / "train-1a2b.partial"
    logs = output / "output" / "msrun_log"
    logs.mkdir(parents=True)
    for rank in range(4):
        (logs / f"worker_{rank}.log").write_text(f"rank {rank}")
    (logs / "scheduler.log").write_text("scheduler")
    (output / "output" / "log").mkdir()
    (output / "metrics.jsonl").write_text("{}\n")
    on_hosts.move_host_logs(output, context(output, hosts=["a", "b"], devices_per_host=2))
    assert [path.name for path in output.iterdir()] == ["metrics.jsonl"]
    kept = tmp_path / "logs" / "train-1a2b"
    assert (kept / "host_1" / "start_0" / "worker_3.log").read_text() == "rank 3"
    assert (kept / "host_0" / "start_0" / "scheduler.log").exists()
    assert not (kept / "host_1" / "start_0" / "scheduler.log").exists()


@pytest.mark.parametrize("log_dir", ["/var/log/msrun", "../logs", ".", "checkpoint/x"])
def test_logs_of_another_place_are_left_there(tmp_path: Path, log_dir: str) -> None:
    (tmp_path / "logs").mkdir()
    output = tmp_path / "train.partial"
    output.mkdir()
    (output / "metrics.jsonl").write_text("{}\n")
    on_hosts.move_host_logs(output, context(output, hosts=["a", "b"], log_dir=log_dir))
    assert (tmp_path / "logs").exists() and (output / "metrics.jsonl").exists()


@pytest.mark.slow
def test_two_hosts_of_this_machine_train_together(tmp_path: Path, inputs: dict[str, Path]) -> None:
    """Real msrun, twice on one machine: the second must not start a scheduler of its own."""
    output = tmp_path / "train.partial"
    output.mkdir()
    notes: set[str] = set()
    ranks: dict[int, float] = {}

    class Watching:
        def update(self, done: float, total: float | None, unit: str, note: str = "") -> None:
            notes.add(note)
            ranks.update(read_rank_times(output / RANK_TIMES))

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    placement = {"hosts": ["127.0.0.1", "127.0.0.2"], "master_port": port}
    given = StageContext(
        "train", tmp_path / "apart", Placement(**placement), Watching(), start="local"
    )
    config = train_config(data_parallel=2, epochs=4, max_steps=6, checkpoint_steps=3)
    counts = train(config, inputs, output, given)
    assert counts.info["steps"] == 6
    assert not [warning for warning in given.warnings if "started again" in warning]
    assert sorted(path.name for path in output.iterdir()) == [
        *["checkpoint", "data_order.json", "metrics.jsonl", "mindformers.yaml", "seconds.jsonl"],
    ]
    assert set(ranks) == {0, 1} and all(0 < seconds < 600 for seconds in ranks.values())
    assert any("2 of 2 hosts" in note for note in notes)
    logs = tmp_path / "logs" / "train"
    assert (logs / "host_0" / "start_1" / "scheduler.log").is_file()
    assert "Training Over" in (logs / "host_1" / "start_1" / "worker_1.log").read_text()


def test_a_ranks_last_step_is_timed_where_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pcl_reasoner.trainer import rank_times

    config: dict[str, Any] = {"callbacks": [{"type": "PclMetrics", "path": "m"}]}
    monkeypatch.delenv(rank_times.RANK_TIMES, raising=False)
    rank_times.add_rank_times(config)
    assert len(config["callbacks"]) == 1
    monkeypatch.setenv(rank_times.RANK_TIMES, str(tmp_path / "times"))
    monkeypatch.setenv("RANK_ID", "3")
    rank_times.add_rank_times(config)
    first, second = config["callbacks"]
    assert (first["type"], second["type"]) == ("PclRankTimes", "PclMetrics")
    clock = [100.0]
    monkeypatch.setattr(rank_times.time, "monotonic", lambda: clock[0])
    callback = rank_times.PclRankTimes(first["folder"])
    run = SimpleNamespace(original_args=lambda: SimpleNamespace(cur_step_num=7))
    callback.on_train_step_begin(run)
    clock[0] += 2.5
    callback.on_train_step_end(run)
    assert read_rank_times(tmp_path / "times") == {3: 2.5}
    # At most once a second.
    callback.on_train_step_begin(run)
    clock[0] += 0.5
    callback.on_train_step_end(run)
    assert read_rank_times(tmp_path / "times") == {3: 2.5}
