"""Hosts whose clocks are apart: two hosts of one process each train; one clock is wrong.

The hosts are processes of this machine, started as ``--start local`` does.
"""

from __future__ import annotations

import json
import socket
from typing import Any

import yaml
from end_to_end_helpers import folder_of
from scene import shim
from trial import FIRM, Bad, Outcome, Work

from pcl_reasoner.core import artifact, files
from pcl_reasoner.core.yaml_file import read_yaml

SECONDS = (2, 60, 3600, 86400, 10**9)


def clocks(work: Work) -> Outcome:
    """The clock of one host is before or behind the other's."""
    expected = _undisturbed(work)
    seconds = work.rng.choice([-1, 1]) * work.rng.choice(SECONDS)
    host = work.rng.choice(["127.0.0.1", "127.0.0.2"])
    work.target = f"v1_sft/train on two hosts, the clock of {host} is off by {seconds:+} s"
    work.copy_runs()
    env = {"LD_PRELOAD": str(shim()), "DRILL_SECONDS": str(seconds)}
    if _train(work, {host: {"env": env}}) != expected:
        raise Bad("the weights differ")
    return Outcome(work.target, FIRM)


def _undisturbed(work: Work) -> dict[str, str]:
    """What two hosts with right clocks train; found once."""
    kept = work.scene.folder / "two_hosts.json"
    if not kept.exists():
        whole = Work(work.scene, work.folder.with_name(f"{work.folder.name}-whole"), work.rng)
        whole.copy_runs()
        kept.write_text(json.dumps(_train(whole, {})))
    found: dict[str, str] = json.loads(kept.read_text())
    return found


def _train(work: Work, per_host: dict[str, Any]) -> dict[str, str]:
    """Train, and return the hashes of the weights."""
    value = read_yaml(files.shipped("launch") / "two_hosts_cpu.yaml")
    value["placement"] |= {"per_host": per_host, "master_port": _free_port()}
    launch = work.folder / "hosts_launch.yaml"
    launch.write_text(yaml.safe_dump(value, sort_keys=False))
    words = ["run", work.scene.recipe("v1_sft"), "--runs", work.runs, "--launch", launch]
    answer = work.call(*words, "--start", "local", "--until", "train")
    if answer.code:
        raise Bad(answer.text)
    single = folder_of(work.scene.runs, "v1_sft/train").name
    (trained,) = [
        one for one in (work.runs / "v1_sft").glob("train-*") if one.is_dir() and one.name != single
    ]
    return {
        path.relative_to(trained).as_posix(): artifact.hash_file(path)
        for path in sorted(trained.rglob("*.safetensors"))
    }


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port
