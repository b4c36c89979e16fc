"""The curation stages against plain scripts: CPU-seconds, peak memory, and their growth.

    python benchmarks/curation_speed.py [--rows 1250] [--characters 10000] [--sides ours]

Both sides do the same four steps on the same Nemotron-like rows (``curation_rows.py``) at 1, 4 and
16 times the size, one after the other: plain (``curation_plain.py``), ours with fastokens, and ours
without it, a process a step; and ours in one process, as a run has it. CPU time is the processes'
user and system time, their start and imports included; "without the start" is what the largest size
took beyond the smallest, over the same of ours. Memory is the peak of anonymous memory (RssAnon),
seen every 5 ms. That all sides find the same problems is checked.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from curation_rows import write_rows, write_tokenizer

HERE = Path(__file__).parent
STAGES = ("convert", "difficulty", "lengths", "unique")
ONE = "ours in one process"
SIDES = ("plain", "ours", "ours without fastokens", ONE)
SIZES = (1, 4, 16)
FILES = 4
PLACEMENT = {"duckdb_memory": "512MB", "threads": 2}
Figures = dict[str, tuple[float, float]]
"""Step -> CPU-seconds and peak in MB."""


def measured(command: Sequence[str]) -> tuple[float, float]:
    """Run a process; give its CPU-seconds and its peak of anonymous memory in MB."""
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.DEVNULL)
    status, peak = Path(f"/proc/{process.pid}/status"), 0
    while True:
        ended, code, usage = os.wait4(process.pid, os.WNOHANG)
        if ended:
            break
        lines = status.read_text().splitlines()
        peak = max([peak, *(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))])
        time.sleep(0.005)
    if code:
        raise SystemExit(f"{' '.join(command)}: exit status {code}")
    return usage.ru_utime + usage.ru_stime, peak / 1024


def plain_step(stage: str, source: Path, work: Path, tokenizer: Path, tokens: int) -> list[str]:
    start = source if stage == "convert" else work
    words = [str(HERE / "curation_plain.py"), stage, str(start), str(work)]
    return [*words, "--tokenizer", str(tokenizer), "--tokens", str(tokens)]


def our_step(
    stage: str, source: Path, work: Path, tokenizer: Path, tokens: int, fast: bool
) -> list[str]:
    words = [stage, str(source), str(work), str(tokenizer), str(tokens), str(int(fast))]
    return [str(Path(__file__)), "--step", *words]


def run_step(
    stage: str, source: Path, work: Path, tokenizer: Path, tokens: int, fast: bool
) -> None:
    """One of our stages, or the whole chain, in this process."""
    if stage == "chain":
        for one in STAGES:
            run_step(one, source, work, tokenizer, tokens, fast)
        return
    if not fast:
        sys.modules["fastokens"] = None  # type: ignore[assignment]  # as if not installed
    from pcl_reasoner import stages
    from pcl_reasoner.core.schema import Placement
    from pcl_reasoner.core.stage import StageContext

    output = work / stage
    output.mkdir()
    before = {name: work / STAGES[index - 1] for index, name in enumerate(STAGES)}
    inputs = {"source": source, "rows": before[stage], "tokenizer": tokenizer}
    settings: dict[str, dict[str, Any]] = {
        "convert": {"format": "nemotron"},
        "lengths": {"min_mean_tokens": tokens},
    }
    code = stages.STAGES[stage]
    config = code.config_class()(**settings.get(stage, {}))
    context = StageContext(stage, work / "apart.jsonl", Placement(**PLACEMENT))
    counts = code.function()(config, inputs, output, context)
    print(counts.info, context.warnings, file=sys.stderr)


def chain(side: str, source: Path, work: Path, tokenizer: Path, tokens: int) -> Figures:
    """All four steps of one side."""
    work.mkdir(parents=True)
    found = {}
    for stage in ("chain",) if side == ONE else STAGES:
        given = (stage, source, work, tokenizer, tokens)
        command = plain_step(*given) if side == "plain" else our_step(*given, side in ("ours", ONE))
        found[stage] = measured(command)
    return found


def problems_of(side: str, work: Path) -> list[str]:
    import pyarrow.parquet as pq

    if side == "plain":
        lines = (work / "problems.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line)["problem"] for line in lines]
    table = pq.read_table(work / "unique" / "problems.parquet", columns=["problem"])
    return table["problem"].to_pylist()


def show(size: int, side: str, figures: Figures) -> None:
    cells = [f"{name} {cpu:6.2f} s {peak:5.0f} MB" for name, (cpu, peak) in figures.items()]
    total = sum(cpu for cpu, _ in figures.values())
    peak = max(peak for _, peak in figures.values())
    print(
        f"{size:2}x {side:22} {' | '.join(cells)} | chain {total:7.2f} s {peak:5.0f} MB", flush=True
    )


def compare(found: dict[tuple[int, str], Figures], sides: Sequence[str]) -> None:
    """Print the ratios of the chain, and how the peaks grow."""
    total = {key: sum(cpu for cpu, _ in figures.values()) for key, figures in found.items()}
    peak = {key: max(one for _, one in figures.values()) for key, figures in found.items()}
    small, large = SIZES[0], SIZES[-1]
    for side in sides:
        print(f"{side}: the peak at {large}x is {peak[large, side] / peak[small, side]:.2f} of 1x")
        if side != "plain" and "plain" in sides:
            grown = [total[large, one] - total[small, one] for one in ("plain", side)]
            print(
                f"plain takes {total[large, 'plain'] / total[large, side]:.1f} times the CPU of "
                f"{side} at {large}x, {grown[0] / grown[1]:.1f} times without the start"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1250, help="at 1x")
    parser.add_argument("--characters", type=int, default=10_000, help="mean of a response")
    parser.add_argument("--work", type=Path, help="kept; a temporary folder when left out")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=SIDES)
    parser.add_argument("--step", nargs=6, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.step:
        stage, source, work, tokenizer, tokens, fast = given.step
        run_step(stage, Path(source), Path(work), Path(tokenizer), int(tokens), fast == "1")
        return
    with tempfile.TemporaryDirectory() as folder:
        work = given.work or Path(folder)
        sides = given.sides
        tokenizer = write_tokenizer(work / "tokenizer")
        tokens = int(0.8 * given.characters)  # about a twentieth of the rows stay
        found: dict[tuple[int, str], Figures] = {}
        for size in SIZES:
            source = work / f"rows_{size}"
            volume = write_rows(source, given.rows * size, given.characters, FILES)
            print(f"{size}x: {given.rows * size} rows, {volume / 1e6:.0f} MB of responses")
            with tempfile.TemporaryDirectory(dir=work) as results:
                problems = []
                for side in sides:
                    target = Path(results) / side.replace(" ", "_")
                    found[size, side] = chain(side, source, target, tokenizer, tokens)
                    problems.append(problems_of(side, target))
                    show(size, side, found[size, side])
                if any(one != problems[0] for one in problems):
                    raise SystemExit("the sides do not find the same problems")
                print(f"    {len(problems[0])} problems, the same of all sides")
        compare(found, sides)


if __name__ == "__main__":
    main()
