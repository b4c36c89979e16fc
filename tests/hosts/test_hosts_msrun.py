"""The shell line of a host, run by a shell; and the keys of a launch file that it comes from."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from pcl_reasoner.core.errors import InputError
from pcl_reasoner.core.files import find, yaml_text
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.yaml_file import read_yaml
from pcl_reasoner.hosts.msrun import host_steps
from pcl_reasoner.runner.launch_file import load_launch


def launch(tmp_path: Path, **placement: Any) -> Placement:
    value = read_yaml(find("laptop", "launch"))
    value["placement"] = placement
    file = tmp_path / "mine.yaml"
    file.write_text(yaml_text(value))
    return load_launch(str(file)).placement


def test_a_shell_runs_the_line_with_every_word_as_given(tmp_path: Path) -> None:
    programs, folder = tmp_path / "my programs", tmp_path / "a folder"
    programs.mkdir()
    folder.mkdir()
    set_env = tmp_path / "set env.sh"
    set_env.write_text("export FROM_FILE=1 WORDS=overwritten\n")
    msrun = programs / "msrun"
    msrun.write_text('#!/bin/sh\npwd\necho "$FROM_FILE" "$WORDS" "$OWN"\nprintf "%s\\n" "$@"\n')
    msrun.chmod(0o755)
    placement = Placement(
        hosts=["node01", "node02"],
        devices_per_host=8,
        set_env=str(set_env),
        env={"WORDS": "a 'b' $HOME", "OWN": "all"},
        per_host={"node02": {"env": {"OWN": "mine"}, "python": str(programs / "python")}},
    )
    line = " && ".join(host_steps(placement, 1, folder, "a b.yaml"))
    said = subprocess.check_output(["bash", "-c", line], text=True).splitlines()
    assert said[:2] == [str(folder), "1 a 'b' $HOME mine"]
    assert said[2:] == [
        "--worker_num=16",
        "--local_worker_num=8",
        "--master_addr=node01",
        "--master_port=8118",
        "--node_rank=1",
        "--log_dir=output/msrun_log",
        "--join=True",
        "--cluster_time_out=1200",
        *["python", "-m", "pcl_reasoner.worker", "a b.yaml"],
    ]


def test_what_a_host_has_of_its_own_takes_the_place_of_what_all_have(tmp_path: Path) -> None:
    placement = Placement(
        hosts=["a", "b"], set_env="/all.sh", per_host={"b": {"set_env": "/own.sh"}}
    )
    assert host_steps(placement, 0, tmp_path, "m")[0] == "source /all.sh"
    assert host_steps(placement, 1, tmp_path, "m")[0] == "source /own.sh"


def test_one_device_in_all_needs_no_msrun(tmp_path: Path) -> None:
    steps = host_steps(Placement(), 0, tmp_path, "m.yaml")
    assert steps == [f"cd {tmp_path}", "python -m pcl_reasoner.worker m.yaml"]


def test_a_node_list_file_is_read_where_the_launch_file_is(tmp_path: Path) -> None:
    nodes = tmp_path / "nodes"
    nodes.write_text("# rack 1\nnode01\n\n  node02  # the second\n10.0.0.3\n")
    placement = launch(tmp_path, host_file=str(nodes), per_host={"node02": {"env": {"A": "1"}}})
    assert placement.hosts == ["node01", "node02", "10.0.0.3"]


@pytest.mark.parametrize(
    ("placement", "words"),
    [
        ({"hosts": ["a", "b", "a"]}, "name every host only once, got repeated a"),
        ({"hosts": ["a"], "spare_hosts": ["b", "a"]}, "name every host only once, got repeated a"),
        ({"hosts": ["root@a"]}, "'root@a' is not a host name .*OpenSSH configuration file"),
        ({"hosts": ["a:8"]}, "'a:8' is not a host name .*devices_per_host"),
        ({"hosts": ["-oProxyCommand=x"]}, "not a host name"),
        ({"hosts": []}, "at least 1 item"),
        ({"per_host": {"lokalhost": {}}}, "'lokalhost' is not a host .*Did you mean 'localhost'"),
        ({"per_host": {"localhost": {"envs": {}}}}, "unknown key.*Did you mean 'env'"),
        ({"host_file": "absent"}, "absent cannot be read"),
        ({"host_file": "nodes", "hosts": ["a"]}, "give either hosts or host_file, got both"),
        ({"host_file": "slots"}, "slots line 2: 'node02 slots=8' is not a host name"),
        ({"host_file": "empty"}, "empty names no host"),
        ({"restarts": -1}, "restarts"),
        ({"ssh": {"user": "root"}}, "ssh.user: unknown key"),
    ],
)
def test_what_is_wrong_with_hosts_is_said_when_the_file_is_loaded(
    tmp_path: Path, placement: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("nodes").write_text("node01\n")
    Path("slots").write_text("node01\nnode02 slots=8\n")
    Path("empty").write_text("# none\n")
    with pytest.raises(InputError, match=words):
        launch(tmp_path, **placement)


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        launch(
            tmp_path,
            hosts=["a", "b"],
            spare_hosts=["b"],
            per_host={"c": {}},
            restarts=-1,
            notice_seconds=0,
        )
    for words in ("spare_hosts", "'c' is not a host", "restarts", "notice_seconds"):
        assert words in str(caught.value)
    assert str(caught.value).startswith("4 problems")
