"""The shell line of a forward pass on the first host: training's environment, msrun, one host."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from train_helpers import write_policy

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.perplexity import forward
from pcl_reasoner.perplexity.old_log_probs import forward_config

PLACEMENT: dict[str, Any] = {
    "hosts": ["node01", "node02"],
    "spare_hosts": ["node03"],
    "devices_per_host": 16,
    "master_port": 8119,
    "cluster_time_out": 600,
    "env": {"ALL": "1"},
    "per_host": {"node01": {"env": {"OWN": "first"}}, "node02": {"env": {"OWN": "second"}}},
    "training": {
        "executable": "/opt/mindspore/bin/python",
        "set_env": ["/opt/cann/set_env.sh"],
        "environment": {"HCCL_EXEC_TIMEOUT": "60"},
    },
}


def line_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranks: int, **changes: Any
) -> tuple[str, str, str | None]:
    """Host, shell line and mark of the pass; nothing is started."""
    seen: list[tuple[str, str, str | None]] = []
    checked: list[list[str]] = []

    def on(host: str, line: str, placement: Placement, log: Path, run: str | None = None) -> None:
        seen.append((host, line, run))
        raise StageError("not started")

    def check(how: str, needs: Any, placement: Placement) -> list[str]:
        checked.append([how, *placement.hosts, *placement.spare_hosts])
        return []

    monkeypatch.setattr(forward.Supervised, "on", on)
    monkeypatch.setattr(forward, "check_hosts", check)
    placement = Placement(**PLACEMENT | changes)
    context = StageContext("prove", tmp_path / "apart", placement, start="ssh")
    config = forward_config(
        rows=1, loss="sft", entropy=False, seq_length=2048, model_parallel=ranks
    )
    policy = write_policy(tmp_path / "policy")
    places = (tmp_path / "pass", tmp_path / "log")
    with pytest.raises(StageError, match="not started"):
        forward.run_forward(config, "a.program", ["m.yaml"], *places, 1, policy, context)
    assert checked == [["ssh", "node01"]]
    return seen[0]


def test_several_ranks_are_msrun_on_the_first_host_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, line, mark = line_of(tmp_path, monkeypatch, 8)
    folder = tmp_path / "pass"
    assert (host, mark) == ("node01", str(folder))
    first, second, *exports, place, command = line.split(" && ")
    assert first == "source /opt/cann/set_env.sh"
    assert second == "export PATH=/opt/mindspore/bin:$PATH"
    assert place == f"cd {folder}"
    assert command == (
        "exec msrun --worker_num=8 --local_worker_num=8 --master_addr=127.0.0.1 "
        "--master_port=8119 --node_rank=0 --log_dir=msrun_log --join=True --cluster_time_out=600 "
        "python -m a.program m.yaml"
    )
    found = dict(one.removeprefix("export ").split("=", 1) for one in exports)
    assert (found["ALL"], found["OWN"], found["HCCL_EXEC_TIMEOUT"]) == ("1", "first", "60")
    assert (found["DEVICE_NUM_PER_NODE"], found["SHARED_PATHS"]) == ("8", str(folder))
    assert found["PCL_DIE_WITH_PARENT"] == "1"


def test_one_rank_is_one_process_of_this_machines_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, line, _ = line_of(tmp_path, monkeypatch, 1, training={})
    assert line.startswith(f"export PATH={Path(sys.executable).parent}:$PATH && ")
    assert line.endswith(" && exec python -m a.program m.yaml")


def test_the_hosts_own_python_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = {"node01": {"python": "/home/own/bin/python"}}
    _, line, _ = line_of(tmp_path, monkeypatch, 1, per_host=own)
    assert " && export PATH=/home/own/bin:$PATH && " in line


def test_a_container_of_training_holds_the_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    container = {"runtime": "docker", "image": "mindspore:2.7.2"}
    training = {"executable": "python", "container": container}
    _, line, _ = line_of(tmp_path, monkeypatch, 8, training=training)
    assert "--name pclr-training-8119" in line and "mindspore:2.7.2" in line
    assert "exec msrun --worker_num=8" in line
