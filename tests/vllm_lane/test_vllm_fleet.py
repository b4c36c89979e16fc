"""Several real vLLM servers that one stage starts."""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

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


def by_server(records: Iterable[dict[str, Any]]) -> Counter[str]:
    return Counter(record["server"] for record in records if "server" in record)


def test_two_servers_share_the_work_and_one_that_is_killed_is_started_again(
    drawn: Path, inputs: dict[str, Path], tmp_path: Path
) -> None:
    output = tmp_path / "out"
    log = output / "responses.partial.jsonl"
    seen: set[int] = set()
    victims: list[str] = []

    def kill_one() -> None:
        # The busier one: the first answer of the other may take it longer than hundreds of this.
        wait_for(lambda: max(by_server(lines_of(log)).values(), default=0) > 300)
        ((victim, _),) = by_server(lines_of(log)).most_common(1)
        victims.append(victim)
        seen.update(kill("EngineCore", victim))

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
    table = pq.read_table(output / "responses" / "part-00000.parquet", columns=["server"])
    answered = by_server(table.to_pylist())
    told = json.loads((output / "sampling.json").read_text())["responses"]["servers"]
    (stayed,) = {one["url"] for one in told} - set(victims)
    # It had eight of the sixteen requests, of eight responses each, and went on with the others.
    assert answered[victims[0]] > 300
    assert answered[stayed] >= 64
    assert len(seen) >= 8  # watch, front, engine and worker of two servers
    assert not [process for process in seen if alive(process)]
    assert not processes_of(os.getpid())
    assert sum("restarted 1 times" in warning for warning in made.warnings) == 1
