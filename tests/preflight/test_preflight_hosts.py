"""What hosts answer before the first stage: this machine under two names, and real hosts."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from engine_helpers import engine
from namespaces import Hosts, why_not
from preflight_helpers import own_launch

from pcl_reasoner.cli.main import cli
from pcl_reasoner.core.schema import Source
from pcl_reasoner.preflight.check import StartCheck, check_recipe
from pcl_reasoner.preflight.on_hosts import check_machines, uses_hosts
from pcl_reasoner.runner.recipe import load_recipe
from pcl_reasoner.scene.graph import Scene, scene_of


def scene(folder: Path, launch: str = "two_hosts_cpu", **placement: Any) -> Scene:
    settings = {"hosts": ["127.0.0.1", "127.0.0.2"], **placement}
    return scene_of(load_recipe("v1_sft", own_launch(folder, launch, **settings)))


def test_fit_hosts_leave_nothing_behind(tmp_path: Path) -> None:
    assert check_machines(scene(tmp_path, master_port=29871), tmp_path / "runs") == (
        [],
        [],
        [],
    )
    assert list((tmp_path / "runs" / "v1_sft").iterdir()) == []


def test_programs_and_files_of_the_launch_file_are_looked_for(tmp_path: Path) -> None:
    ascend = {"set_env": "/no/set_env.sh", "master_port": 29872}
    own = {"sampling": {"executable": str(tmp_path / "vllm")}, "devices_per_host": 64}
    there = scene(tmp_path, "v1_dp8_tp8_pp2", **ascend, **own)
    errors, misfits, warnings = check_machines(there, tmp_path / "runs")
    both = "127.0.0.1, 127.0.0.2"
    can_read, can_run = "a file that can be read", "a file that can be executed"
    set_env = (
        f"/no/set_env.sh is not there, expected {can_read}. Install it there, or correct "
        "placement.set_env."
    )
    assert [error for error in errors if "is not there" in error] == [
        f"training on {both}: {set_env}",
        f"sampling on {both}: {set_env}",
        f"sampling on {both}: {tmp_path}/vllm is not there, expected {can_run}. Install it there, "
        "or correct placement.sampling.executable.",
    ]
    assert misfits == []
    assert warnings == [
        *(
            f"{host}: npu-smi is not there or prints no number: devices were not counted."
            for host in ("127.0.0.1", "127.0.0.2")
        ),
        f"sampling on {both}: {tmp_path}/python is not there, expected {can_run}; its versions "
        "were not asked. It must stand beside sampling.executable.",
    ]


SERVING = {"vllm": "0.12.0", "vllm-ascend": "0.13.0", "torch": "2.8.0", "torch-npu": "2.8.0.post2"}


def test_each_engine_of_each_host_is_asked_for_all_that_it_reads(tmp_path: Path) -> None:
    """The set_env files of a list, and weights that are folders."""
    there = scene(
        tmp_path,
        "v1_dp8_tp8_pp2",
        master_port=29873,
        devices_per_host=64,
        set_env=None,
        training={"set_env": ["/no/cann.sh"]},
        sampling={"executable": sys.executable, "set_env": ["/no/a.sh", "/no/b.sh"], "port": 29883},
        judge_urls=None,
        judging={"executable": "/no/vllm"},
    )
    there.recipe.sources["policy"] = Source(path="/no/weights", kind="model")
    found = check_machines(scene_of(there.recipe), tmp_path / "runs")
    assert [one.split(", expected")[0] for one in found.errors if " on " in one] == [
        "training on 127.0.0.1, 127.0.0.2: /no/cann.sh is not there",
        "training on 127.0.0.1, 127.0.0.2: /no/weights is not there",
        "sampling on 127.0.0.1, 127.0.0.2: /no/a.sh is not there",
        "sampling on 127.0.0.1, 127.0.0.2: /no/b.sh is not there",
    ]
    assert found.errors[-1].endswith("or correct placement.sampling.set_env.")


def test_versions_that_do_not_fit_are_refused_by_validate_and_told_by_run(tmp_path: Path) -> None:
    vllm = engine(tmp_path / "s", SERVING, "8.5.0", "8.5.0")
    vllm |= {"executable": str(tmp_path / "s" / "bin" / "vllm"), "port": 29884}
    there = scene(
        tmp_path,
        "v1_dp8_tp8_pp2",
        master_port=29874,
        devices_per_host=64,
        set_env=None,
        sampling=vllm,
    )
    said = (
        "sampling on 127.0.0.1, 127.0.0.2: vLLM is 0.12.0, expected 0.13.0. vllm-ascend 0.13.0 "
        "needs vllm 0.13.0."
    )
    assert said in check_machines(there, tmp_path / "runs").misfits
    assert said in check_recipe(there.recipe, None, tmp_path / "runs").errors
    start = StartCheck(None, tmp_path / "runs", None, hosts=True)
    assert said not in start.new_errors(there.recipe) and start.asked


def test_the_ports_of_servers_that_a_stage_starts_must_be_free(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        own = {"master_port": 29875, "devices_per_host": 64, "set_env": None}
        vllm = {"executable": sys.executable, "port": port}
        there = scene(tmp_path, "v1_dp8_tp8_pp2", sampling=vllm, **own)
        assert (
            f"127.0.0.2: port {port} is in use: end what uses it, or choose another "
            "placement.sampling.port."
        ) in check_machines(there, tmp_path / "runs").errors
        by_hand = scene(tmp_path, "v1_dp8_tp8_pp2", sampling=vllm | {"by_hand": True}, **own)
        assert not any("in use" in one for one in check_machines(by_hand, tmp_path).errors)


def test_ten_checkpoints_of_a_32b_model_need_3_9_tb(tmp_path: Path) -> None:
    from pcl_reasoner.preflight.on_hosts import _needs

    there = scene_of(load_recipe("v1_sft", "v1_dp8_tp8_pp2"))
    needs = _needs(there, there.recipe.launch.placement, tmp_path)
    # 32.76e9 weights and biases and norms, each with two moments, in float32; 10 are kept
    assert needs.bytes == pytest.approx(3930e9, rel=1e-3)
    assert needs.trains
    # What a killed training left is on the disk already.
    saved = tmp_path / "v1_sft" / "train-1a2b3c4d.partial" / "work" / "checkpoint" / "rank_0"
    saved.mkdir(parents=True)
    (saved / "one.safetensors").write_bytes(b"0" * 1000)
    assert _needs(there, there.recipe.launch.placement, tmp_path).bytes == needs.bytes - 1000
    last = load_recipe("v1_sft", "v1_dp8_tp8_pp2", overrides=("train.max_steps=250",))
    there = scene_of(last)
    fewer = _needs(there, there.recipe.launch.placement, tmp_path)  # after 100, 200 and 250 steps
    assert fewer.bytes == pytest.approx(3 * 393e9, rel=1e-3)


def test_hosts_are_asked_only_for_stages_that_use_them() -> None:
    cluster = load_recipe("v15_opg", "atlas_910c_16x8")
    assert uses_hosts(scene_of(cluster))
    assert not uses_hosts(scene_of(cluster, to_run={"v15_opg/convert", "v15_opg/unique"}))
    assert uses_hosts(scene_of(cluster, to_run={"v15_opg/sample"}))


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    with Hosts(tmp_path_factory.mktemp("two") / "keys", 2) as hosts:
        yield hosts


@pytest.mark.slow
def test_everything_that_is_wrong_with_real_hosts_is_told_at_once(
    tmp_path: Path, two: Hosts
) -> None:
    first, second = two.addresses
    away = two.address(77)
    launch = own_launch(
        tmp_path,
        "two_hosts_cpu",
        hosts=[first, second],
        spare_hosts=[away],
        ssh={"config": str(two.config), "connect_seconds": 9},
        per_host={second: {"python": "/no/python"}},
        set_env="/no/set_env.sh",
    )
    words = ["--launch", launch, "--runs", str(tmp_path / "runs")]
    for command in (["validate", "--hosts"], ["run", "--start", "ssh"]):
        answer = CliRunner().invoke(cli, [command[0], "v1_sft", *command[1:], *words])
        assert answer.exit_code == 1 and answer.exception is not None
        assert str(answer.exception).splitlines() == [
            "3 problems:",
            f"  - {second}: there is no such program there: set per_host.<name>.python.",
            f"  - {away}: there is no route to it: is it up, and is the link?",
            f"  - training on {first}: /no/set_env.sh is not there, expected a file that can be "
            "read. Install it there, or correct placement.set_env.",
        ]
    assert not list((tmp_path / "runs" / "v1_sft").glob("synthetic*"))


@pytest.mark.slow
def test_real_hosts_that_are_fit(tmp_path: Path, two: Hosts) -> None:
    launch = own_launch(
        tmp_path,
        "two_hosts_cpu",
        hosts=two.addresses,
        ssh={"config": str(two.config), "connect_seconds": 3},
        per_host={host: {"python": sys.executable} for host in two.addresses},
    )
    words = ["--launch", launch, "--runs", str(tmp_path / "runs")]
    answer = CliRunner().invoke(cli, ["validate", "v1_sft", "--hosts", *words])
    assert (answer.exit_code, answer.output) == (0, "ok: 10 stages\n")
