"""What one host runs: msrun, or one process where there is one device in all.

source /usr/local/Ascend/ascend-toolkit/set_env.sh && export HCCL_CONNECT_TIMEOUT=3600
&& cd runs/v1_sft/train-1a2b3c4d.partial && msrun --worker_num=128 … --node_rank=3 …
python -m pcl_reasoner.worker mindformers.yaml
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pcl_reasoner.core.schema import Placement
from pcl_reasoner.supervise.environment import environment_steps

ENTRY = "python -m pcl_reasoner.worker"


def host_steps(
    placement: Placement,
    rank: int,
    folder: Path,
    config_file: str,
    python: str | None = None,
    further: Mapping[str, str] | None = None,
    master: str | None = None,
) -> list[str]:
    """The parts of one host's shell line, in order; ``&&`` joins them, the last one trains.

    Args:
        placement: The launch file's.
        rank: Place of the host in ``hosts``, from 0.
        folder: Working directory.
        config_file: The MindFormers YAML.
        python: Path of ``python`` where ``per_host`` names none; None: from PATH.
        further: Environment under the launch file's.
        master: The first host's address, where it is not its name.
    """
    ranks = len(placement.hosts) * placement.devices_per_host
    entry = f"{ENTRY} {shlex.quote(config_file)}"
    start = entry if ranks == 1 else f"{_msrun(placement, ranks, rank, master)} {entry}"
    host = placement.hosts[rank]
    steps = environment_steps(placement, host, python, further)
    return [*steps, f"cd {shlex.quote(str(folder))}", start]


def _msrun(placement: Placement, ranks: int, rank: int, master: str | None) -> str:
    """msrun with the arguments that it takes; it starts ``python`` from PATH."""
    arguments: dict[str, Any] = {
        "worker_num": ranks,
        "local_worker_num": placement.devices_per_host,
        "master_addr": master or placement.hosts[0],
        "master_port": placement.master_port,
        "node_rank": rank,
        "log_dir": placement.log_dir,
        "join": True,
        "cluster_time_out": placement.cluster_time_out,
    }
    words = (f"--{key}={shlex.quote(str(value))}" for key, value in arguments.items())
    return " ".join(["msrun", *words])
