"""The stage ``prove`` with real vLLM servers: a sound one, and one for each seeded fault.

Faults of the weights are given to one server while it runs; those of config.json need a start each.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prove_helpers import FAULTS, Trained
from sample_helpers import problems_folder
from vllm_helpers import CONTEXT, KEY, context, serving

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.serving import Serving
from pcl_reasoner.inference.server import SupervisedServer
from pcl_reasoner.sample.stage import SampleConfig, sample

SETTINGS = ("rope", "epsilon")
WEIGHTS = ("heads swapped", "before")
LONG_WEIGHTS = ("joined matrix", "head tied", "layer")
"""Tried by hand before an issue is closed: the vLLM lane of every push has its limit."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return Trained(tmp_path_factory.mktemp("trained"))


def start(model: Path, log: Path, replaceable: bool) -> SupervisedServer:
    placement = Placement(sampling=Serving(**serving()))
    config = SampleConfig(max_model_len=CONTEXT, served_model="policy")
    server = SupervisedServer(placement, model, config, log, replaceable=replaceable)
    os.environ[KEY] = server.api_key
    server.start()
    return server


async def ready(server: SupervisedServer) -> None:
    async with httpx.AsyncClient(trust_env=False) as http:
        await server.ready(http)


@pytest.fixture(scope="module")
def running(
    trained: Trained, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SupervisedServer]:
    """A server whose weights a test may replace; it keeps the root that it was started with."""
    server = start(trained.export, tmp_path_factory.mktemp("server") / "server.log", True)
    try:
        asyncio.run(ready(server))
        yield server
    finally:
        server.stop()


def reload(server: SupervisedServer, folder: Path) -> None:
    """Give a running server the weights of a folder, as the stage ``rl`` does."""
    body = {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}}
    headers = {"authorization": f"Bearer {server.api_key}"}
    for page, sent in (("collective_rpc", body), ("reset_prefix_cache", None)):
        answer = httpx.post(
            f"{server.root}/{page}", json=sent, headers=headers, timeout=60, trust_env=False
        )
        assert answer.status_code == 200, answer.text


def prove_at(trained: Trained, output: Path, model: Path, url: str) -> None:
    trained.prove(output, model, {}, server_urls=[url], api_keys={url: KEY})


@pytest.mark.parametrize(
    "fault",
    ["none", *WEIGHTS, *(pytest.param(fault, marks=pytest.mark.long) for fault in LONG_WEIGHTS)],
)
def test_weights_of_a_running_server(
    trained: Trained, running: SupervisedServer, tmp_path: Path, fault: str
) -> None:
    url = f"{running.root}/v1"
    if fault == "none":
        prove_at(trained, tmp_path / "out", trained.export, url)
        return
    spoil, cause = FAULTS[fault]
    reload(running, trained.faulty(f"faulty_{fault.split()[-1]}", spoil))
    with pytest.raises(StageError, match=f"The cause: {cause}") as raised:
        # Its root is that of the export: only what it computes shows the fault.
        prove_at(trained, tmp_path / "out", trained.export, url)
    assert f"{url}: does not compute what the trained checkpoint computes" in str(raised.value)


SAMPLING = SampleConfig(
    engine="server", n=2, temperature=1.0, max_new_tokens=4, max_model_len=CONTEXT, suffix=""
)
TEXTS = 4
"""All stored texts: together they have 4 + 39 + 89 + 119 = 251 log-probs."""


def requests_of(server: SupervisedServer) -> float:
    """How many sequences a server has finished, by its own count."""
    headers = {"authorization": f"Bearer {server.api_key}"}
    page = httpx.get(f"{server.root}/metrics", headers=headers, trust_env=False).text
    found = re.findall(r"^vllm:request_success_total\{.*\} (\S+)$", page, re.M)
    return sum(map(float, found))


@pytest.fixture(scope="module")
def proved(
    trained: Trained, running: SupervisedServer, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """The inputs of a stage `sample` of the exported folder, with its proof."""
    root = tmp_path_factory.mktemp("proved")
    reload(running, trained.export)
    prove_at(trained, root / "prove", trained.export, f"{running.root}/v1")
    problems = problems_folder(root / "problems")
    return {"problems": problems, "policy": trained.export, "proof": root / "prove"}


def test_a_server_with_other_weights_than_the_proofs_is_asked_no_question(
    trained: Trained, running: SupervisedServer, proved: dict[str, Path], tmp_path: Path
) -> None:
    url = f"{running.root}/v1"
    before = requests_of(running)
    sound = context(tmp_path / "sound", server_urls=[url])
    counts = sample(SAMPLING, proved, tmp_path / "sound", sound)
    assert counts.kept == 6 and requests_of(running) == before + TEXTS + 6
    (compared,) = counts.info["compared"]
    assert compared["tokens"] == 251 and compared["mean"] < 1e-5
    # vLLM reports when its process started, so a restart is noticed.
    assert compared["started"] > 1e9
    # Another step's weights: the name, the root and the start are those of before.
    reload(running, trained.earlier)
    before = requests_of(running)
    other = context(tmp_path / "other", server_urls=[url])
    with pytest.raises(StageError, match="does not compute what the trained checkpoint") as raised:
        sample(SAMPLING, proved, tmp_path / "other", other)
    assert str(raised.value).startswith(f"{url}: ")
    assert requests_of(running) == before + TEXTS


def test_a_server_that_a_stage_starts_with_other_flags_is_asked_no_question(
    proved: dict[str, Path], tmp_path: Path
) -> None:
    rope = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}
    started = serving()
    started["arguments"] += ["--hf-overrides", json.dumps(rope)]
    output = tmp_path / "sample-12345678.partial"
    with pytest.raises(StageError, match="does not compute what the trained checkpoint") as raised:
        sample(SAMPLING, proved, output, context(output, sampling=started))
    log = tmp_path / "logs" / "sample-12345678.server.log"
    assert f"Its log: {log}." in str(raised.value) and log.is_file()
    assert '"sample_index"' not in (output / "responses.partial.jsonl").read_text()


@pytest.mark.long
@pytest.mark.parametrize("fault", SETTINGS)
def test_settings_of_a_server_that_the_stage_starts(
    trained: Trained, tmp_path: Path, fault: str
) -> None:
    spoil, cause = FAULTS[fault]
    folder = trained.faulty(f"faulty_{fault}", spoil)
    with pytest.raises(StageError, match=f"The cause: {cause}"):
        trained.prove(tmp_path / "out", folder, {}, sampling=serving())
