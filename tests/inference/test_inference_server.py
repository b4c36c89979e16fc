from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pyarrow.parquet as pq
import pytest
from paths import HELPERS
from sample_helpers import context, problems_folder
from servers import all_gone, runs, serving, starts, wait_for

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.serving import Serving
from pcl_reasoner.inference import fleet_keeper, server
from pcl_reasoner.inference.server import SupervisedServer, started
from pcl_reasoner.sample.stage import SampleConfig, sample
from pcl_reasoner.serving.serve_command import command, devices_of, environment, remote_line
from pcl_reasoner.serving.server_key import configured_key, generated_key
from pcl_reasoner.supervise import supervised
from pcl_reasoner.weights.identity import weights_hash

HERE = Path(__file__).parent
CONFIG = SampleConfig(
    engine="server", n=4, max_new_tokens=40, max_model_len=200, seed=100, top_k=0, concurrency=2
)


def keys_of(output: Path) -> list[tuple[str, int]]:
    rows = pq.read_table(output / "responses/part-00000.parquet").to_pylist()
    return [(row["problem_id"], row["sample_index"]) for row in rows]


def test_a_server_is_started_for_the_stage_and_stopped_after_it(
    inputs: dict[str, Path], tmp_path: Path
) -> None:
    output = tmp_path / "sample-12345678.partial"
    placement = serving(tmp_path, arguments=["--dtype", "float32"])
    counts = sample(CONFIG, inputs, output, context(output, **placement))
    assert counts.kept == len(set(keys_of(output))) == 12
    assert len(starts(tmp_path)) == 1
    assert all_gone(tmp_path)
    # What it said is beside the artifact, not in it.
    log = (tmp_path / "logs" / "sample-12345678.server.log").read_text()
    words = json.loads(log.partition("stand-in starts: ")[2].splitlines()[0])
    port = words[words.index("--port") + 1]
    second = f"policy@{weights_hash(inputs['policy'])[:16]}"
    assert words == [
        *["serve", str(inputs["policy"]), "--served-model-name", "policy", second],
        *["--host", "127.0.0.1", "--port", port, "--max-model-len", "200"],
        *["--generation-config", "vllm", "--load-format", "safetensors", "--dtype", "float32"],
    ]
    (served,) = json.loads((output / "sampling.json").read_text())["responses"]["servers"]
    assert served["url"] == f"http://127.0.0.1:{port}/v1"
    assert served["version"] == "stand-in"


def test_a_server_answers_its_stage_alone(
    inputs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A key of the shell's, for something else, is nothing to it.
    monkeypatch.setenv("VLLM_API_KEY", "of the shell")
    placement = serving(tmp_path)
    made = {}
    for run in ("a", "a", "b"):
        log = tmp_path / run / "server.log"
        with started(context(tmp_path, **placement), "sampling", tmp_path, CONFIG, log) as (one,):
            wait_for(lambda one=one: status_of(one, "/health", None) == 200)
            shown = [None, "of the shell", one.api_key]
            found = [status_of(one, "/v1/models", key) for key in shown]
            words = Path(f"/proc/{starts(tmp_path)[-1][0]}/cmdline").read_bytes()
        assert found == [401, 401, 200]
        assert one.api_key.encode() not in words + log.read_bytes()
        # The same one again, so that vLLM need not compile anew; another run has another.
        assert made.setdefault(run, one.api_key) == one.api_key
        kept = log.with_name("server.key")
        assert (kept.read_text(), kept.stat().st_mode & 0o777) == (one.api_key, 0o600)
    assert len(made["a"]) > 40
    assert made["a"] != made["b"]


def status_of(server: SupervisedServer, page: str, key: str | None) -> int | None:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    try:
        return httpx.get(f"{server.root}{page}", headers=headers, trust_env=False).status_code
    except httpx.HTTPError:
        return None


def test_a_key_can_be_given_and_an_empty_one_is_none(tmp_path: Path) -> None:
    given = {"hosts": ["a", "b"], "per_host": {"b": {"env": {"VLLM_API_KEY": "of b"}}}}
    placement = Placement(**given, env={"VLLM_API_KEY": "ours"})
    plain = Serving(executable="vllm")
    own = Serving(executable="vllm", environment={"VLLM_API_KEY": ""})
    assert configured_key(plain, Placement(), None) is None
    found = [configured_key(plain, placement, host) for host in (None, "a", "b")]
    assert found == ["ours", "ours", "of b"]
    assert configured_key(own, placement, "b") == ""
    for words in (["--api-key=s3cret"], ["--api_key", "s3cret"]):
        with pytest.raises(ValueError, match="remove --api-key.*VLLM_API_KEY in environment"):
            Placement(sampling={"executable": "vllm", "arguments": words})
    (tmp_path / "server.key").touch()  # as a full disk leaves it
    assert generated_key(tmp_path) == generated_key(tmp_path) != ""


def test_a_key_stands_in_no_line_of_a_host() -> None:
    env = {"VLLM_API_KEY": "s3cret", "A": "1"}
    placement = Placement(hosts=["a"], env=env, per_host={"a": {"env": {**env, "B": "2"}}})
    value = Serving(executable="/v/vllm", environment={**env, "C": "3"})
    line = remote_line(value, placement, ["/v/vllm", "serve"], "a", 0, 8000)
    assert "export A=1" in line and "export B=2" in line and "export C=3" in line
    assert "s3cret" not in line


@pytest.mark.parametrize("victim", ["front", "keeper"])
def test_a_server_killed_in_mid_batch_is_started_again_and_nothing_is_lost(
    inputs: dict[str, Path], tmp_path: Path, victim: str
) -> None:
    output = tmp_path / "out"
    made = context(output, **serving(tmp_path, slow=3.0))
    log = output / "responses.partial.jsonl"

    def kill() -> None:
        # Two of three problems are answered, the third is in flight.
        wait_for(lambda: log.exists() and len(log.read_text().splitlines()) > 8)
        front = starts(tmp_path)[0][0]
        parent = int(Path(f"/proc/{front}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(front if victim == "front" else parent, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    # No retries: what the server's end broke is not the request's failure.
    counts = sample(CONFIG.model_copy(update={"retries": 0}), inputs, output, made)
    killer.join()
    assert counts.kept == len(set(keys_of(output))) == 12
    assert counts.info["finish_reasons"] == {"stop": 12}
    assert counts.info["retried"] == {"connection": 1}
    assert len(starts(tmp_path)) == 2
    assert all_gone(tmp_path)
    assert any("restarted 1 times" in warning for warning in made.warnings)


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server's tokens are read five times a second."""
    monkeypatch.setattr(fleet_keeper, "METRICS_SECONDS", 0.2)


def test_a_server_that_hangs_and_is_healthy_is_started_again(
    inputs: dict[str, Path], tmp_path: Path, often: None
) -> None:
    output = tmp_path / "out"
    problems = problems_folder(tmp_path / "p", [f"{i} + 1?" for i in range(30)])
    made = context(output, **serving(tmp_path, "hangs", stall_seconds=2.0))
    # No retries: that it hangs is not the requests' failure. Without a restart, they are too late.
    config = CONFIG.model_copy(
        update={"n": 1, "retries": 0, "max_failed": 0.0, "request_timeout": 60.0}
    )
    counts = sample(config, {**inputs, "problems": problems}, output, made)
    assert counts.info["finish_reasons"] == {"stop": 30}
    assert len(set(keys_of(output))) == 30
    assert counts.info["retried"] == {"connection": 2}  # both that were in flight
    assert len(starts(tmp_path)) == 2
    assert all_gone(tmp_path)
    (warning,) = [one for one in made.warnings if "restarted" in one]
    assert "restarted 1 times, 1 times because its requests made no progress for 2 s" in warning


def test_a_server_that_is_slow_and_makes_progress_is_left_alone(
    inputs: dict[str, Path], tmp_path: Path, often: None
) -> None:
    """Every answer takes three times as long as it may go without a token."""
    output = tmp_path / "out"
    made = context(output, **serving(tmp_path, "slow", slow=4.5, stall_seconds=1.5))
    counts = sample(CONFIG, inputs, output, made)
    assert counts.info["finish_reasons"] == {"stop": 12}
    assert "retried" not in counts.info
    assert len(starts(tmp_path)) == 1
    assert not any("restarted" in warning for warning in made.warnings)


def test_a_server_without_metrics_is_not_watched_for_progress(
    inputs: dict[str, Path], tmp_path: Path, often: None
) -> None:
    output = tmp_path / "out"
    made = context(output, **serving(tmp_path, slow=4.5, stall_seconds=1.5))
    assert sample(CONFIG, inputs, output, made).info["finish_reasons"] == {"stop": 12}
    assert len(starts(tmp_path)) == 1


def test_a_server_that_is_lost_too_often_stops_the_stage(
    inputs: dict[str, Path], tmp_path: Path
) -> None:
    placement = serving(tmp_path, "dies_when_asked", restarts=2)
    with pytest.raises(StageError, match="lost 3 times, restarts is 2.*the last lines:"):
        sample(CONFIG, inputs, tmp_path / "out", context(tmp_path / "out", **placement))
    assert len(starts(tmp_path)) == 3
    assert all_gone(tmp_path)


def test_a_server_that_ends_while_it_starts_says_why(
    inputs: dict[str, Path], tmp_path: Path
) -> None:
    placement = serving(tmp_path, "ends_at_once")
    with pytest.raises(StageError, match=r"(?s)ended while it started.*RuntimeError: no device"):
        sample(CONFIG, inputs, tmp_path / "out", context(tmp_path / "out", **placement))


def refused(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("refused", request=request)


def silent(request: httpx.Request) -> httpx.Response:
    raise httpx.ReadTimeout("no answer", request=request)


@pytest.mark.parametrize(
    ("host", "answer", "checks"),
    [
        (None, lambda _: httpx.Response(503), 2),  # vLLM's engine has ended
        (None, refused, 2),
        ("node02", refused, 12),  # perhaps only the network
        (None, silent, 12),
        (None, lambda _: httpx.Response(500), 12),
    ],
)
def test_checks_after_which_a_server_counts_as_lost(
    host: str | None, answer: Any, checks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "HEALTH_SECONDS", 0.0)
    placement = Placement.model_validate(serving(tmp_path))
    one = SupervisedServer(placement, tmp_path, CONFIG, tmp_path / "log", host=host)
    monkeypatch.setattr(SupervisedServer, "ended", False)

    async def count() -> int:
        found = 1
        transports = {name: httpx.MockTransport(answers[name]) for name in answers}
        async with (
            httpx.AsyncClient(transport=transports["bad"]) as bad,
            httpx.AsyncClient(transport=transports["good"]) as good,
        ):
            # One good answer, and the count begins again.
            assert not await one.lost(bad)
            assert not await one.lost(good)
            while not await one.lost(bad):
                found += 1
        return found

    answers = {"bad": answer, "good": lambda _: httpx.Response(200)}
    assert asyncio.run(count()) == checks


def test_a_server_that_is_not_ready_in_time_is_stopped(
    inputs: dict[str, Path], tmp_path: Path
) -> None:
    placement = serving(tmp_path, "never_ready", start_seconds=6.0)
    with pytest.raises(StageError, match="start_seconds = 6"):
        sample(CONFIG, inputs, tmp_path / "out", context(tmp_path / "out", **placement))
    assert len(starts(tmp_path)) == 1
    assert all_gone(tmp_path)


def test_processes_that_ignore_the_end_are_killed_with_those_that_left_the_group(
    inputs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervised, "STOP_SECONDS", 4.0)
    placement = serving(tmp_path, "stubborn")
    sample(CONFIG, inputs, tmp_path / "out", context(tmp_path / "out", **placement))
    assert len(starts(tmp_path)) == 1
    assert all_gone(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_process_outlives_a_stage_that_is_killed(
    inputs: dict[str, Path], tmp_path: Path, number: signal.Signals
) -> None:
    code = (
        "import json, signal, sys; from pathlib import Path;"
        f"sys.path[:0] = [{str(HELPERS)!r}, {str(HERE)!r}];"
        "from sample_helpers import context; from test_inference_server import CONFIG;"
        "from pcl_reasoner.cli.main import _interrupt; signal.signal(signal.SIGTERM, _interrupt);"
        "from pcl_reasoner.sample.stage import sample;"
        "inputs, output, placement = json.loads(sys.argv[1]);"
        "output = Path(output); inputs = {k: Path(v) for k, v in inputs.items()};"
        "sample(CONFIG, inputs, output, context(output, **placement))"
    )
    output = tmp_path / "out"
    paths = {role: str(path) for role, path in inputs.items()}
    told = json.dumps([paths, str(output), serving(tmp_path, slow=30.0)])
    stage = subprocess.Popen([sys.executable, "-c", code, told], stderr=subprocess.PIPE)
    try:
        # The server's line is written when it answers; then the first requests wait for it.
        log = output / "responses.partial.jsonl"
        wait_for(lambda: log.exists() and log.read_text(), seconds=120.0)
        assert all(runs(process) for process in starts(tmp_path)[0])
        stage.send_signal(number)
        stage.communicate(timeout=20)
        assert stage.returncode != 0
        wait_for(lambda: all_gone(tmp_path), seconds=30.0)
    finally:
        stage.kill()


def test_a_missing_executable_is_named(inputs: dict[str, Path], tmp_path: Path) -> None:
    placement = serving(tmp_path)
    placement["sampling"]["executable"] = str(tmp_path / "none" / "vllm")
    with pytest.raises(StageError, match="none/vllm: not an executable.*placement"):
        sample(CONFIG, inputs, tmp_path / "out", context(tmp_path / "out", **placement))


def test_the_command_on_devices(tmp_path: Path) -> None:
    template = tmp_path / "t.jinja"
    template.write_text("")
    config = CONFIG.model_copy(update={"template": str(template)})
    placement = Placement(
        sampling={"executable": "/opt/v/bin/python", "arguments": ["--port", "1"]},
        server_devices=8,
    )
    assert placement.sampling is not None
    words = command(placement.sampling, placement, tmp_path, config, 7)
    assert words == [
        *[
            "/opt/v/bin/python",
            "-m",
            "vllm.entrypoints.openai.api_server",
            "--model",
            str(tmp_path),
        ],
        *["--served-model-name", "policy", "--host", "127.0.0.1", "--port", "7"],
        *["--max-model-len", "200", "--generation-config", "vllm"],
        *["--load-format", "safetensors"],
        *["--tensor-parallel-size", "8", "--chat-template", str(template), "--port", "1"],
    ]


def test_the_environment_is_the_launch_files_over_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/bin")
    own = {"A": "2", "DO_NOT_TRACK": "0"}
    serving = Serving(executable="/opt/v/bin/vllm", environment=own)
    found = environment(serving, Placement(env={"A": "1", "B": "1"}))
    assert found["PATH"] == "/opt/v/bin:/bin"
    assert (found["A"], found["B"], found["DO_NOT_TRACK"]) == ("2", "1", "0")
    assert found["VLLM_NO_USAGE_STATS"] == found["HF_HUB_OFFLINE"] == "1"


def test_a_launch_file_names_servers_or_starts_one() -> None:
    with pytest.raises(ValueError, match="either server_urls or sampling .*, got both"):
        Placement(server_urls=["http://a/v1"], sampling={"executable": "vllm"})


def test_two_servers_share_the_work_and_the_devices(
    inputs: dict[str, Path], tmp_path: Path
) -> None:
    output = tmp_path / "sample-12345678.partial"
    placement = serving(tmp_path, slow=0.6, servers=2)
    placement["server_devices"] = 4
    config = CONFIG.model_copy(update={"n": 1, "concurrency": 4})
    problems = problems_folder(tmp_path / "p", [f"{i} + 1?" for i in range(16)])
    made = context(output, **placement)
    sample(config, {**inputs, "problems": problems}, output, made)
    rows = pq.read_table(output / "responses/part-00000.parquet").to_pylist()
    counts = Counter(row["server"] for row in rows)
    assert (sum(counts.values()), len(counts)) == (16, 2)
    assert min(counts.values()) >= 4  # equally fast, so about half each
    told = json.loads((output / "sampling.json").read_text())["responses"]["servers"]
    assert {one["url"] for one in told} == set(counts)
    logs = [(tmp_path / "logs" / f"sample-12345678.server.{i}.log").read_text() for i in (0, 1)]
    devices = [log.partition("devices: ")[2].splitlines()[0] for log in logs]
    assert devices == ["0,1,2,3", "4,5,6,7"]
    assert all('"--tensor-parallel-size", "4"' in log for log in logs)
    assert len(starts(tmp_path)) == 2
    assert all_gone(tmp_path)


def test_one_of_two_servers_killed_is_started_again_while_the_other_goes_on(
    inputs: dict[str, Path], tmp_path: Path
) -> None:
    output = tmp_path / "out"
    placement = serving(tmp_path, slow=0.8, servers=2)
    log = output / "responses.partial.jsonl"
    config = CONFIG.model_copy(update={"n": 1, "concurrency": 2, "retries": 0})
    problems = problems_folder(tmp_path / "p", [f"{i} + 1?" for i in range(24)])

    def kill() -> None:
        wait_for(lambda: len(answered()) == 2)
        os.kill(starts(tmp_path)[0][0], signal.SIGKILL)

    def answered() -> set[str]:
        text = log.read_text() if log.exists() else ""
        lines = [json.loads(line) for line in text.split("\n")[:-1]]
        return {line["server"] for line in lines if "server" in line}

    killer = threading.Thread(target=kill)
    killer.start()
    made = context(output, **placement)
    counts = sample(config, {**inputs, "problems": problems}, output, made)
    killer.join()
    rows = pq.read_table(output / "responses/part-00000.parquet").to_pylist()
    assert counts.info["finish_reasons"] == {"stop": 24}
    assert len({row["problem_id"] for row in rows}) == 24
    assert counts.info["retried"] == {"connection": 1}
    # The one that stayed, the one that went, and the one that came in its place.
    by_server = Counter(row["server"] for row in rows)
    assert len(by_server) == 3
    assert max(by_server.values()) > 24 / 3
    assert len(starts(tmp_path)) == 3
    assert all_gone(tmp_path)
    (warning,) = made.warnings[-1:]
    assert "restarted 1 times" in warning


def test_a_stage_whose_second_server_does_not_start_leaves_none(
    inputs: dict[str, Path], tmp_path: Path
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1] - 1
        placement = serving(tmp_path, servers=2, port=port)
        with pytest.raises(StageError, match="(?s)the server ended while it started.*in use"):
            sample(CONFIG, inputs, tmp_path / "out", context(tmp_path / "out", **placement))
    assert len(starts(tmp_path)) == 2
    assert all_gone(tmp_path)


def parts(servers: int, environment: dict[str, str], **keys: Any) -> list[dict[str, str]]:
    """The variables that give each of several servers its devices."""
    serving = {"executable": "vllm", "servers": servers, "environment": environment}
    placement = Placement.model_validate({"sampling": {**serving, **keys}, "server_devices": 2})
    assert placement.sampling is not None
    return [devices_of(placement.sampling, placement, place) for place in range(servers)]


def test_devices_by_hand() -> None:
    name = "ASCEND_RT_VISIBLE_DEVICES"
    assert parts(1, {name: "4,5"}) == [{}]
    assert parts(2, {}) == [{name: "0,1"}, {name: "2,3"}]
    assert parts(2, {}, devices=1) == [{name: "0"}, {name: "1"}]
    # Six named, two servers: three each, whatever a model is spread over.
    assert parts(2, {name: "1,2,3, 8,9,10"}) == [{name: "1,2,3"}, {name: "8,9,10"}]
    assert parts(2, {"CUDA_VISIBLE_DEVICES": "6,7"})[1] == {"CUDA_VISIBLE_DEVICES": "7"}
    with pytest.raises(ValueError, match="sampling: .* names 3 devices, which 2 servers cannot"):
        parts(2, {name: "1,2,3"})
    with pytest.raises(ValueError, match="--data-parallel-size need the list of devices"):
        parts(2, {}, arguments=["--data-parallel-size", "2"])


def test_ports_on_another_host_by_kind(tmp_path: Path) -> None:
    one = {"executable": "vllm"}
    placement = Placement.model_validate(
        {"server_port": 9000, "judging": {**one, "servers": 2}, "scoring": {**one, "port": 7000}}
    )
    kinds = ("sampling", "judging", "scoring")
    assert [placement.first_port(kind) for kind in kinds] == [9000, 9100, 7000]
    log, model = tmp_path / "a.log", Path("m")
    for kind, index, port in (("judging", 1, 9101), ("scoring", 0, 7000)):
        server = SupervisedServer(placement, model, CONFIG, log, index, kind, "node02")
        assert server.next_port() == port
    many = {**one, "servers": 101}
    with pytest.raises(ValueError, match="judging: give it a port other than sampling's, 8100"):
        Placement.model_validate({"sampling": many, "judging": one})
    with pytest.raises(ValueError, match="sampling: the ports of its servers end at 65536"):
        Placement.model_validate({"sampling": {**one, "port": 65535, "servers": 2}})


def test_ports_follow_the_first(tmp_path: Path) -> None:
    serving = {"executable": sys.executable, "servers": 2, "port": 8100}
    placement = Placement.model_validate({"sampling": serving}).model_dump()
    context_of = context(tmp_path / "out", **placement)
    log = tmp_path / "logs" / "a.server.log"
    with started(context_of, "sampling", tmp_path, CONFIG, log) as servers:
        assert [server.root[-4:] for server in servers] == ["8100", "8101"]
