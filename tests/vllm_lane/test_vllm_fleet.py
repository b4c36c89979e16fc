"""Several real vLLM servers that one stage starts."""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
from vllm_helpers import (
    CONFIG,
    alive,
    context,
    kill,
    lines_of,
    processes_of,
    serving,
    tokens_of,
    wait_for,
)

from pcl_reasoner.sample.stage import sample


def servers_in(log: Path) -> int:
    return len({line["server"] for line in lines_of(log) if "server" in line})


def test_two_servers_share_the_work_and_one_that_is_killed_is_started_again(
    drawn: Path, inputs: dict[str, Path], tmp_path: Path
) -> None:
    output = tmp_path / "out"
    log = output / "responses.partial.jsonl"
    seen: set[int] = set()
    after: list[int] = []

    def kill_one() -> None:
        # The first answer of a server may take it longer than the other takes for hundreds.
        wait_for(lambda: len(lines_of(log)) > 300 and servers_in(log) == 2)
        after.append(len(lines_of(log)))
        seen.update(kill("EngineCore"))

    killer = threading.Thread(target=kill_one)
    killer.start()
    config = CONFIG.model_copy(update={"concurrency": 16})
    made = context(output, sampling={**serving(), "servers": 2})
    counts = sample(config, inputs, output, made)
    killer.join()
    # Whoever answers: the same seeds, so the very responses of one server that nobody killed.
    assert tokens_of(output) == tokens_of(drawn)
    assert counts.info["finish_reasons"].keys() <= {"stop", "length"}
    assert 0 < sum(counts.info["retried"].values()) <= 16 + 2
    rows = pq.read_table(output / "responses" / "part-00000.parquet", columns=["server"])
    by_server = Counter(rows["server"].to_pylist())
    told = json.loads((output / "sampling.json").read_text())["responses"]["servers"]
    first = {one["url"] for one in told}
    assert len(first) == 2
    assert first <= by_server.keys()
    # The one that stayed went on while the other was being started again.
    assert max(by_server[url] for url in first) > after[0] / 2 + 200
    assert len(seen) >= 8  # watch, front, engine and worker of two servers
    assert not [process for process in seen if alive(process)]
    assert not processes_of(os.getpid())
    assert sum("started again 1 times" in warning for warning in made.warnings) == 1
