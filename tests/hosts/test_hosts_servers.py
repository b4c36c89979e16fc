"""Servers that a stage starts on the hosts of the launch file, over real SSH.

Hosts are network namespaces; what is served is vLLM's stand-in.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow.parquet as pq
import pytest
from hosts_helpers import wait_until
from namespaces import Hosts, why_not

pytestmark = pytest.mark.slow

NOTICE = 6.0
TEXTS = [f"What is {number} + 1?" for number in range(16)]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    with Hosts(tmp_path_factory.mktemp("two") / "keys", 2) as hosts:
        yield hosts


def run(path: Path, there: Hosts, texts: list[str], **keys: Any) -> tuple[Any, Path, Any]:
    from sample_helpers import context, model_folder, problems_folder
    from servers import serving

    from pcl_reasoner.sample.stage import SampleConfig, sample

    inputs = {
        "problems": problems_folder(path / "p", texts),
        "policy": model_folder(path / "m"),
    }
    output = path / "sample-12345678.partial"
    placement = {
        **serving(path, **keys),
        "hosts": there.addresses,
        "ssh": {"config": str(there.config), "connect_seconds": 2},
        "notice_seconds": NOTICE,
        "server_port": 8123,
    }
    made = dataclasses.replace(context(output, **placement), start="ssh")
    config = SampleConfig(
        engine="server",
        n=4,
        max_new_tokens=40,
        max_model_len=200,
        seed=100,
        top_k=0,
        concurrency=2,
        request_timeout=600,
    )
    return sample(config, inputs, output, made), output, made


def answered_by(output: Path) -> Counter[str]:
    table = pq.read_table(output / "responses")
    keys = list(
        zip(*(table[name].to_pylist() for name in ("problem_id", "sample_index")), strict=True)
    )
    assert len(set(keys)) == len(keys)
    return Counter(table["server"].to_pylist())


def test_every_host_serves_and_nothing_is_left(two: Hosts, tmp_path: Path) -> None:
    counts, output, made = run(tmp_path, two, TEXTS[:3], slow=0.3)
    assert counts.kept == 12
    assert set(answered_by(output)) == {f"http://{host}:8123/v1" for host in two.addresses}
    assert not any("lost" in warning or "given up" in warning for warning in made.warnings)
    assert two.left() == []
    log = (tmp_path / "logs" / f"sample-12345678.server.{two.address(2)}.log").read_text()
    words = json.loads(log.partition("stand-in starts: ")[2].splitlines()[0])
    assert words[words.index("--host") + 1] == "0.0.0.0"


def test_a_server_of_a_host_answers_its_stage_alone(two: Hosts, tmp_path: Path) -> None:
    from sample_helpers import PROBLEMS

    log = tmp_path / "sample-12345678.partial" / "responses.partial.jsonl"
    found: list[int | bool] = []

    def look() -> None:
        wait_until(lambda: log.exists() and len(log.read_text().splitlines()) >= 2, seconds=60)
        key = (tmp_path / "logs" / "server.key").read_text()
        for host in two.addresses:
            for shown in (None, key):
                headers = {"authorization": f"Bearer {shown}"} if shown else {}
                url = f"http://{host}:8123/v1/models"
                answer = httpx.get(url, headers=headers, trust_env=False)
                found.append(answer.status_code)
        commands = subprocess.run(["ps", "-eww", "-o", "args"], capture_output=True, text=True)
        assert "stand_in_vllm.py" in commands.stdout
        found.append(key in commands.stdout)

    thread = threading.Thread(target=look)
    thread.start()
    run(tmp_path, two, PROBLEMS, slow=4.0)
    thread.join()
    assert found == [401, 200, 401, 200, False]


def test_a_cut_link_costs_no_response_and_its_server_stops_by_itself(
    two: Hosts, tmp_path: Path
) -> None:
    log = tmp_path / "sample-12345678.partial" / "responses.partial.jsonl"
    quiet = threading.Event()

    def cut() -> None:
        wait_until(lambda: log.exists() and two.address(2) in log.read_text(), seconds=30)
        two.cut(2)
        wait_until(lambda: not [one for one in two.left() if two.address(2) in one], seconds=30)
        quiet.set()

    thread = threading.Thread(target=cut, daemon=True)
    thread.start()
    try:
        counts, output, made = run(tmp_path, two, TEXTS, slow=1.0, restarts=0)
        thread.join(30)
    finally:
        two.mend(2)
    assert counts.kept == 64
    assert sum(answered_by(output).values()) == 64
    # A request was under way there; nothing would have ended it for ten minutes.
    assert counts.info["retried"]["connection"] >= 1
    assert any("given up while others continued" in warning for warning in made.warnings)
    assert quiet.is_set()
    assert two.left() == []
