"""Ray on hosts that are network namespaces, reached over real SSH."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from namespaces import Hosts, why_not

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.hosts.ray_cluster import ray_on_hosts

pytestmark = pytest.mark.slow

OWN_RAY = "mkdir -p /tmp/ray && mount -t tmpfs none /tmp/ray"
"""Every host has a folder of Ray of its own, as machines have."""


DRIVER = """
import json, sys, time
from pathlib import Path
from pcl_reasoner.data_engine.tasks import map_parts
from pcl_reasoner.hosts.ray_cluster import ray_on_hosts
from pcl_reasoner.core.schema import JoinedCluster, Placement
from pcl_reasoner.core.stage import NoProgress

def where(part):
    time.sleep(0.3)
    return part, str(Path("/proc/self/ns/net").readlink())

placement = Placement.model_validate_json(sys.argv[1])
found = []
for time_of in ("first", "again"):
    with ray_on_hosts(placement, Path(sys.argv[2])) as there:
        engine = JoinedCluster(**{**placement.data.model_dump(), **there})
        found.append(list(map_parts(where, range(24), engine, NoProgress(), "parts")))
print(json.dumps(found))
"""
"""Ray reads its environment once a process, so it runs in one of its own."""


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("needs the extra ray")
    reason = why_not()
    if reason:
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("two") / "keys"
    with Hosts(folder, 2, mounts={1: OWN_RAY, 2: OWN_RAY}) as hosts:
        yield hosts


def placement(there: Hosts, **more: Any) -> Placement:
    return Placement.model_validate(
        {
            "hosts": there.addresses,
            "ssh": {"config": str(there.config), "connect_seconds": 3},
            "data": {"engine": "ray", "workers": 4},
            **more,
        }
    )


def test_parts_go_to_all_hosts_and_nothing_is_left(two: Hosts, tmp_path: Path) -> None:
    told = placement(two).model_dump_json()
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, told, str(tmp_path)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    for found in json.loads(done.stdout.splitlines()[-1]):
        assert [part for part, _ in found] == list(range(24))
        spaces = {space for _, space in found}
        assert len(spaces) == 2
        assert str(Path("/proc/self/ns/net").readlink()) not in spaces
    assert two.left() == []
    of_ours = ["pgrep", "-f", f"address={two.address(1)}:"]
    assert subprocess.run(of_ours, capture_output=True, text=True).stdout == ""
    assert not (tmp_path / "ray_token").exists()


def test_a_host_that_cannot_start_ray_is_told_and_nothing_is_left(
    two: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_USAGE_STATS_ENABLED"):
        monkeypatch.setenv(name, "")
    told = placement(two, per_host={two.address(2): {"python": "/nowhere/bin/python"}})
    with (
        pytest.raises(StageError, match=r"(?s)Ray ended while it started.*nowhere"),
        ray_on_hosts(told, tmp_path),
    ):
        pytest.fail("it started")
    assert two.left() == []
    assert not (tmp_path / "ray_token").exists()
