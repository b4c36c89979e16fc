"""Real hosts: network namespaces with an OpenSSH server in each, on a bridge.

Training by the real MindFormers Trainer under real msrun; faults that need no training are tried
with msrun's stand-in.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hosts_helpers import Bench, bench, wait_until
from namespaces import Hosts, why_not
from paths import HELPERS

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.stage import NoProgress, StageContext
from pcl_reasoner.hosts.checks import Needs, check_hosts
from pcl_reasoner.hosts.job import Job
from pcl_reasoner.hosts.recover import run_job
from pcl_reasoner.supervise.processes import environment_of, name_of

pytestmark = pytest.mark.slow

NOTICE = 4

LAUNCHER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from hosts_helpers import Bench
from pcl_reasoner.hosts.recover import run_job
from pcl_reasoner.core.stage import NoProgress

made = Bench(Path(sys.argv[2]), 3000)
ssh = {"config": sys.argv[3]}
run_job(made.job("ssh", hosts=sys.argv[4:], ssh=ssh, notice_seconds=4), NoProgress())
"""


@pytest.fixture(scope="module", autouse=True)
def _can_be_made() -> None:
    reason = why_not()
    if reason:
        pytest.skip(reason)


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with Hosts(tmp_path_factory.mktemp("three") / "keys", 3) as hosts:
        yield hosts


def job(made: Bench, there: Hosts, **changes: Any) -> Job:
    settings = {
        "hosts": there.addresses[:2],
        "ssh": {"config": str(there.config), "connect_seconds": 3},
        "notice_seconds": NOTICE,
    }
    return made.job("ssh", **settings | changes)


def meanwhile(made: Bench, step: int, act: Callable[[], None]) -> threading.Thread:
    """Do something once a step is made."""

    def wait_and_act() -> None:
        wait_until(lambda: len(made.made) >= step and made.starts(1))
        act()

    thread = threading.Thread(target=wait_and_act, daemon=True)
    thread.start()
    return thread


def test_a_cut_link_is_noticed_and_both_sides_stop(three: Hosts, tmp_path: Path) -> None:
    made = bench(tmp_path, steps=1000)
    quiet: list[float] = []

    def cut_and_mend() -> None:
        began = time.monotonic()
        three.cut(2)
        wait_until(lambda: not [line for line in three.left() if "stand_in" in line])
        quiet.append(time.monotonic() - began)
        made.steps = made.made[-1] + 10
        (made.output / "steps.json").write_text(str(made.steps))
        three.mend(2)

    thread = meanwhile(made, 30, cut_and_mend)
    [restart] = run_job(job(made, three), NoProgress())
    thread.join()
    assert restart.host == three.address(2)
    assert restart.seconds_to_notice < NOTICE + 10
    # The host that is alone stops by itself, within as many seconds.
    assert quiet[0] < NOTICE + 10
    assert restart.hosts == three.addresses[:2]
    assert made.made == list(range(1, made.steps + 1))
    assert not (made.output / "overlap").exists()
    wait_until(lambda: three.left() == [])


def test_a_host_that_is_gone_is_replaced_by_a_spare_one(three: Hosts, tmp_path: Path) -> None:
    made = bench(tmp_path, steps=400)
    try:
        thread = meanwhile(made, 30, lambda: three.kill(2))
        spare = {"spare_hosts": [three.address(3)]}
        restarts = run_job(job(made, three, **spare), NoProgress())
        thread.join()
    finally:
        three.mend(2)
        three.serve(2)
    [restart] = restarts
    assert restart.hosts == [three.address(1), three.address(3)]
    assert restart.seconds_to_notice < NOTICE + 10
    assert made.made == list(range(1, 401))
    wait_until(lambda: three.left() == [])


def test_a_killed_launcher_leaves_nothing_on_any_host(three: Hosts, tmp_path: Path) -> None:
    made = bench(tmp_path, steps=3000)
    words = [str(HELPERS), str(tmp_path), str(three.config), *three.addresses[:2]]
    launcher = subprocess.Popen([sys.executable, "-c", LAUNCHER, *words])
    wait_until(lambda: len(made.made) >= 20 and made.starts(1))
    assert len([line for line in three.left() if "stand_in" in line]) == 4
    launcher.send_signal(signal.SIGKILL)
    launcher.wait()
    wait_until(lambda: three.left() == [])
    # Run again, it goes on.
    made.steps = made.made[-1] + 20
    (made.output / "steps.json").write_text(str(made.steps))
    assert run_job(job(made, three), NoProgress()) == []
    assert made.made == list(range(1, made.steps + 1))


def test_a_full_disk_on_one_host_is_said(tmp_path: Path) -> None:
    made = bench(tmp_path / "bench", {"1.1": {"step": 8, "do": "fill"}})
    disk = made.output / "disk"
    disk.mkdir()
    mounts = {2: f"mount -t tmpfs -o size=64k tmpfs {disk}"}
    with (
        Hosts(tmp_path / "keys", 2, net=210, mounts=mounts) as hosts,
        pytest.raises(StageError) as caught,
    ):
        run_job(job(made, hosts), NoProgress())
    assert f"{hosts.address(2)} ended" in str(caught.value)
    assert "No space left on device" in str(caught.value)
    assert "Free space there" in str(caught.value)
    assert made.starts() == 1


def needs(folder: Path, *files: Path) -> Needs:
    return Needs(folder, files, 1000, folder / "cache")


def test_hosts_that_are_fit_pass_and_others_are_named_at_once(
    three: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = bench(tmp_path)
    weights = tmp_path / "weights"
    weights.write_bytes(b"x" * 1000)
    fit = job(made, three, hosts=three.addresses).placement
    assert check_hosts("ssh", needs(made.output, weights), fit) == []
    # One host without a server there, one that nobody knows, one whose name is none.
    config = tmp_path / "config"
    text = three.config.read_text()
    refused = f"Host refused\n    HostName {three.address(1)}\n    Port 2\n"
    unknown = (
        f"Host unknown\n    HostName {three.address(2)}\n    UserKnownHostsFile /dev/null\n"
        "    StrictHostKeyChecking yes\n"
    )
    stranger = f"Host stranger\n    HostName {three.address(3)}\n    IdentityFile /dev/null\n"
    config.write_text(refused + unknown + stranger + text)
    keyless = text.replace(f"    IdentityFile {three.folder}/key\n", "")
    config.write_text(refused + unknown + stranger + keyless)
    names = ["refused", "unknown", "no-such-host.invalid"]
    ssh = {"config": str(config), "connect_seconds": 3}
    wrong = check_hosts(
        "ssh", needs(made.output, weights), job(made, three, hosts=names, ssh=ssh).placement
    )
    assert [line.split(":")[0] for line in wrong] == names
    assert "no SSH server answers there" in wrong[0]
    assert "host key is not known" in wrong[1]
    assert "name is not known" in wrong[2]
    [line] = check_hosts(
        "ssh", needs(made.output, weights), job(made, three, hosts=["stranger"], ssh=ssh).placement
    )
    assert "refuses our key" in line
    wait_until(lambda: three.left() == [])


def test_an_unshared_folder_other_weights_and_a_port_in_use_are_found(tmp_path: Path) -> None:
    made = bench(tmp_path / "bench")
    weights, local = tmp_path / "weights", tmp_path / "local"
    local.mkdir()
    weights.write_bytes(b"x" * 1000)
    (local / "same").write_bytes(b"s" * 1000)
    (local / "other").write_bytes(b"o" * 1000)
    # Host 2 has folders of its own in place of the run's and of one of the weights.
    copy = f"cp {local}/same {tmp_path}/kept && mount -t tmpfs -o size=1m tmpfs {local}"
    fill = f"cp {tmp_path}/kept {local}/same && head -c 1000 /dev/zero > {local}/other"
    mounts = {2: f"mount -t tmpfs -o size=1m tmpfs {made.output} && {copy} && {fill}"}
    files = [weights, local / "same", local / "other"]
    with Hosts(tmp_path / "keys", 2, net=211, mounts=mounts) as hosts:
        listener = (
            "import socket, time; s = socket.socket(); s.bind(('', 8118)); s.listen(); "
            "print(1, flush=True); time.sleep(60)"
        )
        words = ["ip", "netns", "exec", hosts.name(1), sys.executable, "-c", listener]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as holder:
            assert holder.stdout is not None and holder.stdout.readline()
            wrong = check_hosts("ssh", needs(made.output, *files), job(made, hosts).placement)
            holder.kill()
    assert len(wrong) == 3
    assert wrong[0].startswith(f"{hosts.address(1)}: port 8118 is in use")
    assert wrong[1].startswith(f"{hosts.address(2)}: {made.output} is not the folder")
    assert wrong[2].startswith(f"{hosts.address(2)}: {local}/other has other content")


def worker_of(hosts: Hosts, number: int) -> int:
    """msrun's worker on a host."""
    for process in hosts.processes(number):
        if environment_of(process).get("MS_ROLE") == "MS_WORKER" and name_of(process) != "tail":
            return process
    raise AssertionError("no worker there")


def contents(folder: Path) -> dict[str, str]:
    """Every file's hash, but for seconds.jsonl, which differs between equal runs."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "seconds.jsonl"
    }


SIZES = [5, 9, 14, 20, 7, 25, 30, 11, 6, 17, 22, 13, 8, 19, 28, 10]
STEPS = 24


def really_trained(
    folder: Path,
    inputs: dict[str, Path],
    hosts: Hosts,
    port: int,
    fault: Callable[[], None] | None = None,
) -> list[str]:
    """Train on two hosts; something happens after 12 steps. Returns what was lost."""
    from kill_helpers import holding
    from train_helpers import train_config

    from pcl_reasoner.train.stage import train

    output = folder / "train.partial"
    output.mkdir(parents=True)
    env = holding(folder / "held", 12) if fault else {}
    placement = job(bench(folder / "bench"), hosts, env=env, master_port=port).placement
    context = StageContext("train", output / "apart", placement, start="ssh")
    metrics = output / "metrics.jsonl"

    def after_12_steps() -> None:
        wait_until(lambda: metrics.exists() and metrics.read_bytes().count(b"\n") >= 12, 200)
        assert fault is not None
        fault()
        (folder / "held" / "hold").unlink()

    if fault is not None:
        threading.Thread(target=after_12_steps, daemon=True).start()
    train(train_config(epochs=6, checkpoint_steps=5, data_parallel=2), inputs, output, context)
    return [warning for warning in context.warnings if "started again" in warning]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    from train_helpers import write_packs, write_policy

    folder = tmp_path_factory.mktemp("inputs")
    return {
        "policy": write_policy(folder / "policy"),
        "packs": write_packs(folder / "packs", SIZES),
    }


@pytest.fixture(scope="module")
def undisturbed(
    three: Hosts, inputs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    assert really_trained(folder, inputs, three, 8300) == []
    return folder / "train.partial"


def kill_worker(hosts: Hosts, number: int) -> None:
    os.kill(worker_of(hosts, number), signal.SIGKILL)


def cut_and_mend(hosts: Hosts, number: int) -> None:
    """Mend the link when the host that was alone has stopped by itself."""
    hosts.cut(number)
    alone = f"{hosts.address(number)}: "
    wait_until(
        lambda: (
            not [line for line in hosts.left() if alone in line and "pcl_reasoner.worker" in line]
        )
    )
    hosts.mend(number)


@pytest.mark.parametrize(
    ("fault", "number", "reasons"),
    [
        pytest.param(kill_worker, 1, ["was killed by signal 9"], marks=pytest.mark.long),
        (kill_worker, 2, ["was killed by signal 9"]),
        pytest.param(
            cut_and_mend, 2, ["was silent for", "the connection to"], marks=pytest.mark.long
        ),
    ],
)
def test_real_training_goes_on_to_the_same_losses(
    three: Hosts,
    inputs: dict[str, Path],
    undisturbed: Path,
    tmp_path: Path,
    fault: Callable[[Hosts, int], None],
    number: int,
    reasons: list[str],
) -> None:
    """The first host has the scheduler, for which its msrun waits."""
    [lost] = really_trained(tmp_path, inputs, three, 8301, lambda: fault(three, number))
    assert any(reason in lost for reason in reasons), lost
    records = (undisturbed / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in records] == list(range(1, STEPS + 1))
    # Every figure of every step, and the weights, to the last bit.
    assert contents(tmp_path / "train.partial") == contents(undisturbed)
    logs = tmp_path / "logs" / "train"
    [line] = (logs / "restarts.jsonl").read_text().splitlines()
    restart = json.loads(line)
    assert restart["host"] == three.address(number)
    assert restart["seconds_to_notice"] < (NOTICE if fault is kill_worker else NOTICE + 10)
    assert (restart["step"], restart["resumed_from"]) == (12, 10)
    assert (logs / "host_1" / "start_2" / "worker_1.log").is_file()
    assert (logs / "host_0" / "start_1" / "scheduler.log").is_file()
    wait_until(lambda: three.left() == [])
