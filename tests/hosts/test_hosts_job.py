"""What each host is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from hosts_helpers import bench

from pcl_reasoner.hosts.job import keeper_command, mark_of, task_of


def test_a_host_runs_its_own_part_with_its_own_settings(tmp_path: Path) -> None:
    made = bench(tmp_path)
    own = {"env": {"ASCEND_PROCESS_LOG_PATH": "/var/own"}, "python": "/opt/own/bin/python"}
    job = made.job(
        "ssh",
        hosts=["node01", "node02"],
        devices_per_host=4,
        env={"ASCEND_PROCESS_LOG_PATH": "/var/all"},
        per_host={"node02": own},
    )
    first, second = (task_of(job, job.placement, rank, 3) for rank in (0, 1))
    logs = made.logs / "host_1" / "start_3"
    assert second.log == str(logs / "msrun.log")
    assert second.copies == {"/var/own": str(logs / "plog")}
    folder = made.output / "work" / "msrun_log"
    assert second.worker_logs == [str(folder / f"worker_{rank}.log") for rank in range(4, 8)]
    assert first.copies == {"/var/all": str(made.logs / "host_0" / "start_3" / "plog")}
    assert first.command is not None and second.command is not None
    assert "--node_rank=1 " in second.command[2] and "--master_addr=node01 " in second.command[2]
    assert "export PATH=/opt/own/bin:$PATH" in second.command[2]
    assert f"export PATH={Path(sys.executable).parent}:$PATH" in first.command[2]
    # The shell gives its place to msrun, so that whoever is killed takes all along.
    assert second.command[2].rpartition(" && ")[2].startswith("exec msrun ")
    assert keeper_command(job, job.placement, "node02")[-1] == (
        "exec /opt/own/bin/python -P -m pcl_reasoner.hosts.keeper"
    )


def test_a_runs_mark_is_of_the_folder_and_the_host(tmp_path: Path) -> None:
    one, other = bench(tmp_path / "one").job(), bench(tmp_path / "other").job()
    assert mark_of(one, "a") == mark_of(one, "a")
    assert len({mark_of(one, "a"), mark_of(one, "b"), mark_of(other, "a")}) == 3


def test_on_one_machine_only_the_first_host_takes_itself_for_the_master(tmp_path: Path) -> None:
    """msrun asks `ip` for this machine's addresses."""
    made = bench(tmp_path)
    job = made.job(hosts=["here", "there"])
    first, second = (task_of(job, job.placement, rank, 1).command for rank in (0, 1))
    assert first is not None and second is not None
    assert "--master_addr=127.0.0.1 " in first[2] and "--master_addr=127.0.0.1 " in second[2]
    asked = second[2].rpartition(" && ")[0] + " && ip -j addr"
    assert subprocess.check_output(["bash", "-c", asked], text=True) == "[]\n"
    assert "not_the_master" not in first[2]


def test_lost_workers_are_left_to_mindio_where_it_starts_them_again(tmp_path: Path) -> None:
    made = bench(tmp_path)
    for value, follows in (("{TTP:1,ARF:1}", False), ("{TTP:1,ARF:0}", True)):
        job = made.job(env={"MS_ENABLE_TFT": value})
        assert task_of(job, job.placement, 0, 1).follow_workers is follows
    assert task_of(made.job(), made.job().placement, 0, 1).follow_workers
