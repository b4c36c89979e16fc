"""The memory of the stage ``sample`` while responses of a server pass through it.

    python benchmarks/sampling_memory.py [--responses 512 1024 4096] [--tokens 32000]
    python benchmarks/sampling_memory.py --responses 6064 48512 --tokens 512

``slots_server.py`` answers at once. Each size is a stage in a process of its own, 8 responses a
problem, 64 requests at a time. Printed: its peak of memory, its seconds and CPU-seconds, the size
of what it wrote, and the growth from the last size but one to the last. A server that answers at
once is the worst case, as all that is in flight is in memory together; so the first sizes should
not be smaller than that, 512. The log of all responses lies on the disk: about 8 bytes a token.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from sampling_client import slots_server, write_inputs

SIDE: dict[str, Any] = {"n": 8, "concurrency": 64, "vllm": False, "policy": None}


def run_stage(url: str, work: Path, given: argparse.Namespace) -> None:
    """The stage in this process; prints what it took."""
    from sampling_client import settings

    from pcl_reasoner.core.schema import Placement
    from pcl_reasoner.core.stage import StageContext
    from pcl_reasoner.sample.stage import sample

    output = work / "sample"
    output.mkdir()
    context = StageContext("sample", work / "apart.jsonl", Placement(server_urls=[url]))
    inputs = {"problems": work / "problems", "policy": work / "policy"}
    began = time.perf_counter()
    counts = sample(settings(given), inputs, output, context)
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    size = (output / "responses" / "part-00000.parquet").stat().st_size / 2**20
    print(json.dumps([counts.kept, peak, seconds, time.process_time(), size]))


def measure(responses: int, tokens: int) -> tuple[int, float]:
    """One size: a line of the table, and its responses and peak in MiB."""
    given = argparse.Namespace(problems=responses // SIDE["n"], tokens=tokens, **SIDE)
    with tempfile.TemporaryDirectory() as folder:
        write_inputs(Path(folder), given)
        with slots_server(Path(folder), "--slots", "512", "--pace", "1e9") as url:
            words = ["--step", url, folder, "--tokens", str(tokens)]
            command = [sys.executable, __file__, *words]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    kept, peak, seconds, cpu, size = json.loads(done.stdout.splitlines()[-1])
    print(f"{kept:9,} {peak:10.0f} {seconds:10.1f} {cpu:8.1f} {size:11.1f}", flush=True)
    return kept, peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--responses", type=int, nargs="+", default=[512, 1024, 4096])
    parser.add_argument("--tokens", type=int, default=32_000, help="of a response")
    parser.add_argument("--step", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.step:
        url, work = given.step
        side = argparse.Namespace(problems=0, tokens=given.tokens, **SIDE)
        run_stage(url, Path(work), side)
        return
    from workload import machine

    print(machine("httpx", "pyarrow"))
    print(f"responses of {given.tokens} tokens")
    print("responses   peak MiB    seconds    CPU-s   parquet MiB")
    found = [measure(size, given.tokens) for size in given.responses]
    if len(found) > 1:
        (before, small), (last, large) = found[-2:]
        print(f"growth: {(large - small) * 1024 / (last - before):.1f} KiB a response")


if __name__ == "__main__":
    main()
