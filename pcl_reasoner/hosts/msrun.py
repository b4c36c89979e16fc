"""The command of one host: msrun, or a single process if there is one device in total.

source /usr/local/Ascend/ascend-toolkit/set_env.sh && export HCCL_CONNECT_TIMEOUT=3600
&& cd runs/v1_sft/train-1a2b3c4d.partial && msrun --worker_num=128 … --node_rank=3 …
python -m pcl_reasoner.worker mindformers.yaml
"""

import argparse
import os
import shlex
from collections.abc import Mapping
from pathlib import Path

from pcl_reasoner.core.schema import Placement
from pcl_reasoner.supervise.environment import environment_steps

ENTRY = "python -m pcl_reasoner.worker"


def host_steps(
    placement: Placement,
    rank: int,
    folder: Path,
    config_file: str,
    python: str | None = None,
    base_env: Mapping[str, str] | None = None,
    master: str | None = None,
) -> list[str]:
    """Return the steps of one host's shell line, to be joined by ``&&``; the last one trains.

    Args:
        placement: The launch file's settings.
        rank: Index of the host in ``hosts``, from 0.
        folder: Working directory.
        config_file: The MindFormers YAML.
        python: Path of ``python`` if ``per_host`` names none; None: from PATH.
        base_env: Environment variables; those of the launch file override them.
        master: Address of the first host; None: its name.
    """
    ranks = len(placement.hosts) * placement.devices_per_host
    entry = f"{ENTRY} {shlex.quote(config_file)}"
    start = entry if ranks == 1 else f"{_msrun(placement, ranks, rank, master)} {entry}"
    host = placement.hosts[rank]
    steps = environment_steps(placement, host, python, base_env)
    return [*steps, f"cd {shlex.quote(str(folder))}", start]


def _msrun(placement: Placement, ranks: int, rank: int, master: str | None) -> str:
    """Return msrun with its arguments. It starts ``python`` from PATH."""
    arguments = msrun_arguments(
        ranks,
        placement.devices_per_host,
        rank,
        master or placement.hosts[0],
        placement.master_port,
        placement.log_dir,
        placement.cluster_time_out,
    )
    return shlex.join(["msrun", *arguments])


def msrun_arguments(
    ranks: int, local: int, rank: int, master: str, port: int, log_dir: str, seconds: int
) -> list[str]:
    """Return msrun's own arguments, which come before the program that it starts.

    Args:
        ranks: Number of workers on all hosts.
        local: Number of workers on this host.
        rank: Index of this host, from 0.
        master: Name or address of the first host.
        port: Port of the master.
        log_dir: Folder for the worker_N.log files.
        seconds: Seconds within which all workers must have joined.
    """
    return [
        f"--worker_num={ranks}",
        f"--local_worker_num={local}",
        f"--master_addr={master}",
        f"--master_port={port}",
        f"--node_rank={rank}",
        f"--log_dir={log_dir}",
        "--join=True",
        f"--cluster_time_out={seconds}",
    ]


def main() -> None:
    """Replace this process by msrun on one of several hosts; launch/msrun.sh calls this."""
    parser = argparse.ArgumentParser(prog="python -m pcl_reasoner.hosts.msrun")
    parser.add_argument("config")
    parser.add_argument("--hosts", nargs="+", required=True)
    for name in ("rank", "devices", "port", "seconds"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--log-dir", required=True)
    given = parser.parse_args()
    arguments = msrun_arguments(
        given.devices * len(given.hosts),
        given.devices,
        given.rank,
        given.hosts[0],
        given.port,
        given.log_dir,
        given.seconds,
    )
    os.execvp("msrun", ["msrun", *arguments, *ENTRY.split(), given.config])


if __name__ == "__main__":
    main()
