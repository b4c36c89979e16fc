"""Our pass on a host of the launch file: the same numbers, its environment, and its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from forward_on_host import HOST, proved, telling, words
from hosts_helpers import is_alive, wait_until
from paths import HELPERS
from prove_helpers import CONFIG, ModelServer, Trained

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.perplexity import forward
from pcl_reasoner.recheck.texts import read_proof

LOCAL = {**CONFIG, "engine": "local"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return Trained(tmp_path_factory.mktemp("trained"))


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The stand-in for ssh comes first in PATH; its calls are in the returned file."""
    programs, down = tmp_path / "programs", tmp_path / "down"
    programs.mkdir()
    down.mkdir()
    (programs / "ssh").write_text((HELPERS / "stand_in_ssh.sh").read_text())
    (programs / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("DOWN", str(down))
    return down / "asked"


def on_host(variables: dict[str, str], **others: Any) -> dict[str, Any]:
    """The launch file's machines: two hosts, of which the first has a variable of its own."""
    return {
        "hosts": [HOST, "127.0.0.2"],
        "per_host": {HOST: {"env": {"OF_HOST": "first", "OF_BOTH": "host's"}}},
        "training": {"environment": {**variables, "OF_BOTH": "training's"}},
        "notice_seconds": 4,
        **others,
    }


def log_probs(output: Path) -> list[list[float]]:
    found: list[list[float]] = pq.read_table(output / "texts.parquet")["log_probs"].to_pylist()
    return found


@pytest.mark.slow
def test_a_host_computes_the_same_bits_in_its_own_environment(
    trained: Trained, tmp_path: Path, ssh: Path
) -> None:
    proved(trained.inputs(), tmp_path / "here", LOCAL, {}, None)
    assert not ssh.exists()
    seen, variables = telling(tmp_path / "python")
    placement = on_host(variables)
    proved(trained.inputs(), tmp_path / "there", LOCAL, placement, "ssh")
    wanted = log_probs(tmp_path / "here")
    assert log_probs(tmp_path / "there") == wanted and sum(map(len, wanted)) == 251
    environment = json.loads(seen.read_text())
    assert (environment["OF_HOST"], environment["OF_BOTH"]) == ("first", "training's")
    assert environment["HF_HUB_OFFLINE"] == "1"
    # Both calls go to the first host: the check, and the pass.
    assert [line.split(" -- ")[1].split()[0] for line in ssh.read_text().splitlines()] == [HOST] * 2
    assert (tmp_path / "logs" / "there.model.log").is_file()
    # With --start local it runs here, as without the option.
    proved(trained.inputs(), tmp_path / "local", LOCAL, placement, "local")
    assert len(ssh.read_text().splitlines()) == 2
    assert log_probs(tmp_path / "local") == wanted


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_the_pass_ends_with_the_runner(
    trained: Trained, tmp_path: Path, ssh: Path, number: signal.Signals
) -> None:
    seen, variables = telling(tmp_path / "python", hold=True)
    placement = on_host(variables)
    command = words(trained.inputs(), tmp_path / "out", LOCAL, placement)
    runner = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    wait_until(seen.exists, 60)
    process = json.loads(seen.read_text())["pid"]
    assert is_alive(process)
    runner.send_signal(number)
    runner.wait(30)
    wait_until(lambda: not is_alive(process), 10)


def test_a_host_that_is_not_fit_starts_nothing(trained: Trained, tmp_path: Path, ssh: Path) -> None:
    (ssh.parent / HOST).touch()
    with pytest.raises(StageError) as caught:
        proved(trained.inputs(), tmp_path / "out", LOCAL, on_host({}), "ssh")
    assert str(caught.value) == (
        f"the forward pass runs on {HOST}, the first of placement.hosts, and cannot start there:\n"
        f"  {HOST}: it does not answer: is it up, and is the link?\n"
        "Correct it, or put another host first."
    )
    assert len(ssh.read_text().splitlines()) == 1


def test_a_process_that_fails_there_is_told_with_its_host(
    trained: Trained, tmp_path: Path, ssh: Path
) -> None:
    file = tmp_path / "set_env.sh"
    file.write_text("echo no CANN here; exit 3\n")
    placement = on_host({}, set_env=str(file))
    with pytest.raises(StageError, match=rf"^{HOST}: .* exit code 3\..*\nno CANN here"):
        proved(trained.inputs(), tmp_path / "out", LOCAL, placement, "ssh")


@pytest.mark.slow
def test_the_pass_comes_before_the_servers_and_is_kept(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with servers by hand: no devices for the pass beside them, and none after it."""
    server = ModelServer(trained.export)
    url, output = server.url, tmp_path / "prove"
    gone = {"server_urls": ["http://127.0.0.1:9/v1"]}
    with pytest.raises(StageError, match="127.0.0.1:9"):
        proved(trained.inputs(), output, {**CONFIG, "retries": 0}, gone, None)
    kept = list((tmp_path / "prove.cache" / "proofs").iterdir())
    assert len(kept) == 1
    monkeypatch.setattr(forward.worker, "run_worker", lambda *_: pytest.fail("a second pass"))
    output.rename(tmp_path / "first")
    proved(trained.inputs(), output, CONFIG, {"server_urls": [url]}, None)
    server.stop()
    assert read_proof(output, 128).texts
