"""The command of one host: msrun, or a single process if there is one device in total.

source /usr/local/Ascend/ascend-toolkit/set_env.sh && export HCCL_CONNECT_TIMEOUT=7200
&& cd runs/v1_sft/train-1a2b3c4d.partial && msrun --worker_num=128 … --node_rank=3 …
python -m pcl_reasoner.worker mindformers.yaml
"""

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.serving import VISIBLE_DEVICES
from pcl_reasoner.runner import failed_graphs
from pcl_reasoner.supervise.container import in_container
from pcl_reasoner.supervise.environment import environment_steps

ENTRY = "python -m pcl_reasoner.worker"


_SECONDS_TO_WAIT = "7200"
"""As in upstream's scripts: one pipeline stage compiles minutes longer than another."""


def training_environment(folder: Path, ranks: int, devices_per_host: int) -> dict[str, str]:
    """Return environment variables of every rank; those of the launch file override them.

    Args:
        folder: The stage's folder, which all hosts share.
        ranks: Number of ranks on all hosts.
        devices_per_host: Ranks per host.
    """
    always = {
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        # MindFormers logs as soon as it is imported. These files must not stay in the artifact.
        "LOG_MF_PATH": str(folder / "work" / "log"),
        failed_graphs.VARIABLE: str(folder / "work" / "log"),
        # NumPy's threads take the cores from MindSpore, and ranks from one another.
        "OPENBLAS_NUM_THREADS": "1",
    }
    if ranks == 1:
        return always
    return always | {
        # With more ranks than a host has devices (8 if not set), MindFormers refuses to start
        # unless it knows that its output folder is shared. By itself it recognises only NFS.
        "DEVICE_NUM_PER_NODE": str(devices_per_host),
        "SHARED_PATHS": str(folder),
        "HCCL_CONNECT_TIMEOUT": _SECONDS_TO_WAIT,
        "HCCL_EXEC_TIMEOUT": _SECONDS_TO_WAIT,
    }


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
        python: Path of the interpreter if neither ``per_host`` nor ``training`` has one; None:
            ``python`` in PATH.
        base_env: Environment variables; the launch file's variables override them.
        master: Address of the first host; None: its name in ``hosts``.
    """
    ranks = len(placement.hosts) * placement.devices_per_host
    entry = f"{ENTRY} {shlex.quote(config_file)}"
    if ranks > 1:
        settings = (placement.master_port, placement.log_dir, placement.cluster_time_out)
        master = master or placement.hosts[0]
        arguments = msrun_arguments(ranks, placement.devices_per_host, rank, master, *settings)
        # msrun starts ``python`` from PATH.
        entry = f"{shlex.join(['msrun', *arguments])} {entry}"
    training = placement.training
    python = training.python or (None if training.container else python)
    steps = environment_steps(placement, placement.hosts[rank], python, base_env, training)
    return [*steps, f"cd {shlex.quote(str(folder))}", entry]


def training_line(placement: Placement, line: str) -> str:
    """Return the shell line that trains on a host: the line itself, or a container that runs it.

    Args:
        placement: Uses ``training``, ``devices_per_host`` and ``master_port``.
        line: The steps of `host_steps`, as one line.
    """
    container = placement.training.container
    if container is None:
        return line
    variables = {**placement.env, **placement.training.environment}
    listed = next((variables[name] for name in VISIBLE_DEVICES if variables.get(name)), None)
    devices = listed.split(",") if listed else map(str, range(placement.devices_per_host))
    return in_container(line, container, f"pclr-training-{placement.master_port}", list(devices))


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
    config, rank, devices, port, log_dir, seconds, *hosts = sys.argv[1:]
    settings = (int(rank), hosts[0], int(port), log_dir, int(seconds))
    arguments = msrun_arguments(int(devices) * len(hosts), int(devices), *settings)
    os.execvp("msrun", ["msrun", *arguments, *ENTRY.split(), config])


if __name__ == "__main__":
    main()
