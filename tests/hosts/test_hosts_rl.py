"""The stage ``rl`` on two hosts by real msrun; a rank is killed between two rounds."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest
from rl_stage_helpers import lines_of, stage_settings, write_inputs

from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.rl.stage import rl
from pcl_reasoner.rounds.config import RlConfig
from pcl_reasoner.serving.serve_command import free_port

HOSTS = {"hosts": ["127.0.0.1", "127.0.0.2"], "cluster_time_out": 300, "log_dir": "work/msrun_log"}


def rank_in(output: Path) -> int:
    """The process of a training rank of this stage."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().split(b"\0")
            here = (path / "cwd").resolve() == output.resolve()
        except OSError:
            continue
        trains = b"pcl_reasoner.worker" in words and not any(b"msrun" in word for word in words)
        if here and trains:
            return int(path.name)
    raise AssertionError(f"no training rank in {output}")


def kill_after(output: Path, rounds: int) -> None:
    """SIGKILL a rank when metrics.jsonl has so many lines."""
    until = time.monotonic() + 300
    file = output / "metrics.jsonl"
    while not file.exists() or len(file.read_text().splitlines()) < rounds:
        assert time.monotonic() < until
        time.sleep(0.05)
    os.kill(rank_in(output), signal.SIGKILL)


@pytest.mark.slow
def test_rounds_on_two_hosts_survive_the_kill_of_a_rank(tmp_path: Path) -> None:
    output = tmp_path / "rl.partial"
    output.mkdir()
    changes = {"data_parallel": 2, "micro_batch_size": 1, "max_rounds": 3, "checkpoint_rounds": 1}
    config = RlConfig.model_validate(stage_settings(**changes))
    placement = Placement.model_validate({**HOSTS, "master_port": free_port()})
    context = StageContext("rl", output / "quarantined.jsonl", placement, start="local")
    killer = threading.Thread(target=kill_after, args=(output, 1))
    killer.start()
    counts = rl(config, write_inputs(tmp_path / "inputs"), output, context)
    killer.join()
    assert (counts.read, counts.info["rounds"]) == (3 * 16, 3)
    assert [line["step"] for line in lines_of(output / "metrics.jsonl")] == [1, 2, 3]
    [warning] = [one for one in context.warnings if "started again" in one]
    # msrun ends its rank as soon as the other host's is gone, and either is reported.
    assert "was killed by signal" in warning
    [restart] = (tmp_path / "logs" / "rl" / "restarts.jsonl").read_text().splitlines()
    # The rounds that were made are not sampled again; at most one update is made again.
    assert json.loads(restart)["resumed_from"] in (0, 1)
    answered = [(one["round"], one["n"]) for one in lines_of(output / "probe.jsonl")]
    assert answered == [(0, 2), (2, 2), (3, 2)]
