"""Our pass on a host of the launch file: the same numbers, its environment, and its end."""

from __future__ import annotations

import dataclasses
import json
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from forward_on_host import HOST, proved, telling, words
from hosts_helpers import is_alive, wait_until
from namespaces import Hosts, why_not
from prove_helpers import CONFIG, ModelServer, Trained
from rehearsals import cluster_config, on_ranks, stage_inputs

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schemas import SEGMENTS
from pcl_reasoner.perplexity import forward
from pcl_reasoner.prove.config import ProveConfig
from pcl_reasoner.prove.passes import Passes
from pcl_reasoner.prove.suspects import AS_TRAINED
from pcl_reasoner.recheck.texts import read_proof
from pcl_reasoner.rehearse.scale import Scaled, scale
from pcl_reasoner.weights.conversion import write_mindformers
from pcl_reasoner.weights.stream import read_files

LOCAL = {**CONFIG, "engine": "local"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return Trained(tmp_path_factory.mktemp("trained"))


def on_host(variables: dict[str, str], **others: Any) -> dict[str, Any]:
    """The launch file's machines: two hosts; the first has a variable of its own."""
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
    # A server that differs: the figures are told, although no suspect's pass can run beside it.
    monkeypatch.setattr(forward.worker, "run_worker", no_memory)
    server = ModelServer(trained.policy)
    with pytest.raises(StageError, match=r"(?s)251 tokens .* \(a pass failed: no memory\)"):
        output.rename(tmp_path / "second")
        proved(trained.inputs(trained.policy), output, CONFIG, {"server_urls": [server.url]}, None)
    server.stop()
    assert (tmp_path / "logs" / "prove.proof.json").is_file()


def no_memory(*_: Any) -> None:
    """Stand for a forward pass on devices that servers hold."""
    raise StageError("no memory")


@pytest.mark.slow
def test_a_cut_link_ends_the_pass_on_both_sides(trained: Trained, tmp_path: Path) -> None:
    """A real OpenSSH server in a network namespace: nobody closes the connection."""
    if reason := why_not():
        pytest.skip(reason)
    with Hosts(tmp_path / "keys", 1) as hosts:
        seen, variables = telling(tmp_path / "python", hold=True)
        placement = {
            "hosts": hosts.addresses,
            "ssh": {"config": str(hosts.config), "connect_seconds": 3},
            "training": {"environment": variables},
            "notice_seconds": 4,
        }
        command = words(trained.inputs(), tmp_path / "out", LOCAL, placement)
        runner = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        wait_until(seen.exists, 60)
        process = json.loads(seen.read_text())["pid"]
        assert process in hosts.processes(1)
        hosts.cut(1)
        _, errors = runner.communicate(timeout=60)
        wait_until(lambda: not is_alive(process), 30)
        assert f"StageError: {hosts.addresses[0]}: the connection was lost: " in errors
        wait_until(lambda: hosts.left() == [], 30)  # the keeper ends after its command


@pytest.mark.slow
def test_several_ranks_of_a_host_compute_what_they_compute_here(
    ranks_can_run: None, tmp_path: Path, ssh: Path
) -> None:
    """Two ranks under msrun, at the launch file's port."""
    scaled = scale(cluster_config(2, 1, 1, compressed_mask=True), None, 8).config
    inputs = stage_inputs(Scaled(scaled, []), tmp_path)
    file = tmp_path / "checkpoint.safetensors"
    write_mindformers(inputs["policy"], file)
    ids = np.random.default_rng(3).integers(3, 200, (2, 300)).tolist()
    rows = [
        {"problem_id": "p", "input_ids": one, "labels": [-100, *one[1:]], "length": len(one)}
        for one in ids
    ]
    segments = pa.Table.from_pylist(rows, schema=SEGMENTS)
    settings = {"seq_length": 2048, "max_segments": 16, "precision": "float32"}
    config = ProveConfig(**settings, data_parallel=2)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    found = []
    for start in (None, "ssh"):
        with on_ranks(scaled, tmp_path, port, [HOST]) as context:
            context = dataclasses.replace(context, start=start)
            places = (tmp_path / f"work_{start}", tmp_path / f"{start}.log")
            tensors, policy = read_files([file]), inputs["policy"]
            passes = Passes(config, tensors, "hash", policy, segments, *places, context)
            found.append(np.concatenate(passes.values([AS_TRAINED])[0]))
    assert len(ssh.read_text().splitlines()) == 2
    np.testing.assert_allclose(*found, atol=5e-6)
