"""Every program of a launch file starts in its own environment, as the processes see it."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from sample_helpers import context
from servers import all_gone, serving, starts, wait_for

from pcl_reasoner.core.programs import Container, Training
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.serving import Serving
from pcl_reasoner.inference.server import started
from pcl_reasoner.inference.settings import SamplingConfig
from pcl_reasoner.supervise.container import in_container
from pcl_reasoner.train import worker

HELPERS = Path(__file__).parent.parent / "helpers"
SETTINGS = SamplingConfig(max_model_len=200)


def recording(folder: Path, name: str, **keys: Any) -> dict[str, Any]:
    """A server that writes its environment to ``folder/NAME.json`` when it starts."""
    place = folder / name
    place.mkdir()
    value: dict[str, Any] = serving(place, **keys)["sampling"]
    program = Path(value["executable"])
    record = (
        f"import json, os; json.dump(dict(os.environ), open({str(folder / name)!r} + '.json', 'w'))"
    )
    first, *rest = program.read_text().splitlines()
    program.write_text("\n".join([first, f'{sys.executable} -c "{record}"', *rest]) + "\n")
    return value


def shell_file(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text + "\n")
    return str(folder / name)


@pytest.fixture
def one_per_program(tmp_path: Path) -> dict[str, Any]:
    """A launch file's placement with a CANN for all, and another CANN and NNAL for the policy."""
    common = shell_file(tmp_path, "cann8", "export CANN=8.5.0 OWN=of_the_file")
    cann = shell_file(tmp_path, "cann9", "export CANN=9.1.0 OWN=of_the_file")
    nnal = shell_file(tmp_path, "nnal", 'export ATB="$CANN"')
    policy = recording(tmp_path, "policy", environment={"OWN": "policy's"})
    judge = recording(tmp_path, "judge", environment={"OWN": "judge's"})
    return {
        "set_env": common,
        "env": {"ALL": "1"},
        "sampling": {**policy, "set_env": [cann, nnal]},
        "judging": judge,
    }


def environment_of(folder: Path, name: str) -> dict[str, str]:
    found: dict[str, str] = json.loads((folder / f"{name}.json").read_text())
    return found


def serve(made: Any, key: Any, log: Path) -> None:
    async def answers(server: Any) -> None:
        async with httpx.AsyncClient() as http:
            await server.ready(http)

    with started(made, key, log.parent / "model", SETTINGS, log) as servers:
        for server in servers:
            asyncio.run(answers(server))


@pytest.mark.parametrize("there", [False, True])
def test_servers_of_two_models_see_their_own_cann_and_variables(
    one_per_program: dict[str, Any], tmp_path: Path, ssh: Path, there: bool
) -> None:
    made = context(tmp_path, **one_per_program, **({"hosts": ["127.0.0.1"]} if there else {}))
    made = dataclasses.replace(made, start="ssh" if there else None)
    serve(made, "sampling", tmp_path / "s.log")
    serve(made, "judging", tmp_path / "j.log")
    assert ssh.exists() == there
    policy, judge = (environment_of(tmp_path, name) for name in ("policy", "judge"))
    assert [policy[name] for name in ("CANN", "ATB", "OWN", "ALL")] == [
        *("9.1.0", "9.1.0", "policy's", "1")
    ]
    assert [judge[name] for name in ("CANN", "OWN", "ALL")] == ["8.5.0", "judge's", "1"]
    assert "ATB" not in judge
    assert policy["PATH"].startswith(str(tmp_path / "policy" / "bin"))
    assert policy["VLLM_API_KEY"] and "VLLM_API_KEY" not in (ssh.read_text() if there else "")


def test_an_empty_list_sources_nothing(one_per_program: dict[str, Any], tmp_path: Path) -> None:
    one_per_program["judging"]["set_env"] = []
    serve(context(tmp_path, **one_per_program), "judging", tmp_path / "j.log")
    assert "CANN" not in environment_of(tmp_path, "judge")


def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, Path]:
    """Return the stand-in's path, and the folder with what it did."""
    home, program = tmp_path / "docker", tmp_path / "my docker"
    home.mkdir()
    stand_in = HELPERS / "stand_in_docker.py"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {stand_in} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("DOCKER_HOME", str(home))
    return str(program), home


def test_a_server_in_a_container_has_its_devices_alone_and_ends_with_its_stage(
    one_per_program: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime, home = docker(tmp_path, monkeypatch)
    monkeypatch.setenv("OF_THE_HOST", "1")
    one_per_program["sampling"] |= {
        "container": {"image": "vllm:1", "runtime": runtime, "mounts": ["/data", "/a:/b:ro"]},
        "servers": 2,
        "devices": 4,
    }
    serve(context(tmp_path, **one_per_program), "sampling", tmp_path / "s.log")
    assert all_gone(tmp_path / "policy") and len(starts(tmp_path / "policy")) == 2
    calls = [json.loads(line) for line in (home / "log").read_text().splitlines()]
    runs = [words for words in calls if words[0] == "run"]
    devices = [
        [word for word in words if word.startswith("--device=/dev/davinci")] for words in runs
    ]
    first, second = sorted(devices)
    assert first[:4] == [f"--device=/dev/davinci{number}" for number in range(4)]
    assert second[:4] == [f"--device=/dev/davinci{number}" for number in range(4, 8)]
    assert all(
        {"--volume=/data:/data", "--volume=/a:/b:ro", "vllm:1"} <= set(words) for words in runs
    )
    assert sum(words[0] == "stop" for words in calls) == 2
    policy = environment_of(tmp_path, "policy")
    assert policy["IN_CONTAINER"].startswith("pclr-server-")
    assert (policy["CANN"], policy["ATB"], policy["OWN"]) == ("9.1.0", "9.1.0", "policy's")
    assert policy["VLLM_API_KEY"] and "ASCEND_RT_VISIBLE_DEVICES" not in policy
    assert "OF_THE_HOST" not in policy
    assert policy["VLLM_API_KEY"] not in (home / "log").read_text()


def test_a_killed_shell_leaves_a_container_that_the_next_start_removes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime, home = docker(tmp_path, monkeypatch)
    container = Container(image="i", runtime=runtime, ascend=False)
    line = in_container("echo $$ >> pids; exec sleep 600", container, "one", [])
    pids = tmp_path / "pids"

    def start() -> subprocess.Popen[bytes]:
        known = len(pids.read_text().split()) if pids.exists() else 0
        shell = subprocess.Popen(["bash", "-c", line], cwd=tmp_path)
        wait_for(lambda: pids.exists() and len(pids.read_text().split()) == known + 1)
        return shell

    killed = start()
    killed.kill()
    killed.wait()
    second = start()
    left, running = (int(word) for word in pids.read_text().split())
    assert not Path(f"/proc/{left}").exists() and Path(f"/proc/{running}").exists()
    second.send_signal(signal.SIGTERM)
    assert second.wait(20) != 0
    assert not Path(f"/proc/{running}").exists()
    last = ["bash", "-c", in_container("exit 7", container, "one", [])]
    assert subprocess.run(last).returncode == 7
    # An image that is not there is not fetched: the container does not start.
    monkeypatch.setenv("DOCKER_LACKS", "i")
    assert subprocess.run(last).returncode == 125
    assert not (home / "pulled").exists()


@pytest.mark.parametrize("own", [True, False])
def test_training_on_this_machine_sees_its_own_environment(tmp_path: Path, own: bool) -> None:
    python = tmp_path / "mindspore" / "python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nenv > said\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    cann = shell_file(tmp_path, "cann", "export CANN=8.5.0 OWN=of_the_file")
    training = Training(executable=str(python), set_env=[cann], environment={"OWN": "mine"})
    placement = Placement(env={"ALL": "1"}, training=training if own else Training())
    words = [worker.interpreter(placement), "-c", "open('metrics', 'w').write('')"]
    worker.run_worker(
        words, tmp_path, tmp_path / "log", tmp_path / "m", 1, {"A": "2"}, Silent(), placement
    )
    if not own:
        assert words[0] == sys.executable and not (tmp_path / "said").exists()
        return
    said = dict(line.partition("=")[::2] for line in (tmp_path / "said").read_text().splitlines())
    assert [said[name] for name in ("CANN", "OWN", "ALL", "A")] == ["8.5.0", "mine", "1", "2"]
    assert said["PATH"].startswith(str(python.parent))


class Silent:
    def update(self, done: float, total: float | None, unit: str, note: str = "") -> None:
        """Nobody looks."""


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"container": {"image": "i", "mounts": ["data"]}}, "absolute paths.*got 'data'"),
        ({"container": {"image": ""}}, "at least 1 character"),
        ({"set_env": 1}, "valid list"),
    ],
)
def test_a_wrong_environment_is_an_error_of_the_launch_file(keys: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Serving(executable="vllm", **keys)
