"""Records a second of grading by rule, beside a plain math-verify loop over the same records.

    python benchmarks/grading_speed.py [--records 512] [--tokens 32000] [--rounds 5]
    python benchmarks/grading_speed.py --memory 1024 4096 16384 48512

Responses are made by rule: a think part of prose, LaTeX and Chinese, as long as --tokens, then an
answer in a box; --records of them are graded with integers as answers and with LaTeX, long and
short, once with 16 responses a problem (whose answers repeat, as a model's do) and once with a
problem a response. The sides take turns in one process, on records of the same kind; that ours
and math-verify's verdicts are the same is checked, and differences are counted:

    ours          grade_by_rule, its worker process included in its CPU-seconds
    math-verify   verify(parse(truth), parse(what follows </think>)), with its own time-outs
    whole text    the same on the whole response, a tenth of the records where these are long

With --memory the whole stage ``grade`` grades so many records of --tokens, each size in a process
of its own: seconds, records/s, and the peak of its memory.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

CHARACTERS_A_TOKEN = 3
CORRECT_SHARE = 0.6
LINES = (
    "So we have ${a}x^2 - {b}x + {c} = 0$, and the discriminant is ${b}^2 - 4·{a}·{c}$.\n",
    "Wait, {a} * {b} is not {c}. Let me check that again, step by step, from the beginning.\n",
    "Hmm, \\frac{{{a}}}{{{b}}} is about {c}, so $\\sqrt{{{b}}}$ is irrational.\n",
    "因此 $n = {a}$，余数是 {c}。\n",
    "The sum over k from 1 to {a} is even if and only if {b} is; otherwise the answer is {c}.\n",
)
Record = tuple[str, str]
"""Response and ground truth."""


def integer(draw: random.Random) -> tuple[str, list[str], list[str]]:
    """Truth, correct spellings, incorrect ones."""
    n = draw.randrange(1000)
    return str(n), [str(n), f"{n:03}"], [str(n + 1), str((n * 7 + 1) % 1000 + 1000)]


def latex(draw: random.Random) -> tuple[str, list[str], list[str]]:
    a, b, c = draw.randrange(2, 99), draw.randrange(2, 99), draw.randrange(100, 999)
    kinds = (
        (
            f"\\frac{{{a}}}{{{c}}}",
            [f"{a}/{c}", f"\\dfrac{{{a}}}{{{c}}}"],
            [f"\\frac{{{b}}}{{1{c}}}"],
        ),
        (f"{a}\\sqrt{{{b}}}", [f"\\sqrt{{{b}}} \\cdot {a}"], [f"{a + 1}\\sqrt{{{b}}}"]),
        (f"\\left[{a}, {c}\\right)", [f"[{a},{c})"], [f"({a},{c})", f"[{a},{c + 1})"]),
        (f"({a}, {b}, {c})", [f"({a},{b},{c})"], [f"({b},{c},{a + c})"]),
        (f"x^2+{a}x+{c}", [f"{c} + {a}x + x^2"], [f"x^2-{a}x+{c}"]),
        (
            f"\\frac{{{a}\\pi}}{{{c}}}",
            [f"\\frac{{{a}}}{{{c}}}\\pi"],
            [f"\\frac{{\\pi}}{{{c + a}}}"],
        ),
        (f"2^{{{a}}}\\cdot {c}", [f"{c} \\cdot 2^{{{a}}}"], [f"2^{{{a + 1}}}\\cdot {c}"]),
    )
    truth, correct, incorrect = draw.choice(kinds)
    return truth, [truth, *correct], incorrect


def thinking(characters: int, draw: random.Random) -> str:
    parts, size = [], 0
    while size < characters:
        numbers = {name: draw.randrange(2, 999) for name in "abc"}
        parts.append(draw.choice(LINES).format(**numbers))
        size += len(parts[-1])
    return "".join(parts)


def records_of(kind: Any, count: int, group: int, tokens: int, seed: int) -> Iterator[Record]:
    """``group`` responses a problem, one after the other."""
    draw = random.Random(seed)
    for index in range(count):
        if index % group == 0:
            truth, correct, incorrect = kind(draw)
        answer = draw.choice(correct if draw.random() < CORRECT_SHARE else incorrect)
        text = thinking(tokens * CHARACTERS_A_TOKEN, draw)
        yield f"<think>{text}</think>\nThe answer is $\\boxed{{{answer}}}$.", truth


def worker_seconds() -> float:
    """CPU-seconds of the processes that compare, while they live."""
    from pcl_reasoner.verifiers import equivalence

    processes = [one.process for one in equivalence._pool.workers if one.process is not None]
    stats = [Path(f"/proc/{one.pid}/stat").read_text().rpartition(")")[2] for one in processes]
    ticks = sum(sum(map(int, stat.split()[11:13])) for stat in stats)
    return ticks / os.sysconf("SC_CLK_TCK")


def by_rule(records: list[Record]) -> list[bool]:
    from pcl_reasoner.verifiers.answers import grade_by_rule

    return [grade_by_rule(one, truth, "stop").outcome == "correct" for one, truth in records]


def by_math_verify(records: list[Record]) -> list[bool]:
    """What a script does: the answer is looked for behind the think part."""
    return by_math_verify_whole([(one.rpartition("</think>")[2], truth) for one, truth in records])


def by_math_verify_whole(records: list[Record]) -> list[bool]:
    from math_verify import parse, verify

    return [
        bool(verify(parse(truth if truth.isdigit() else f"${truth}$"), parse(one)))
        for one, truth in records
    ]


SIDES: dict[str, Callable[[list[Record]], list[bool]]] = {
    "ours": by_rule,
    "math-verify": by_math_verify,
    "whole text": by_math_verify_whole,
}


def clocked(side: str, records: list[Record]) -> tuple[list[bool], float, float]:
    """What it says, CPU-seconds and seconds, a record."""
    before = time.process_time() + worker_seconds()
    began = time.perf_counter()
    said = SIDES[side](records)
    seconds = time.perf_counter() - began
    cpu = time.process_time() + worker_seconds() - before
    return said, cpu / len(records), seconds / len(records)


def compare(name: str, kind: Any, group: int, tokens: int, given: argparse.Namespace) -> None:
    """One kind of records, the sides in turns: medians of the rounds."""
    spent: dict[str, list[tuple[float, float]]] = {side: [] for side in SIDES}
    differ = 0
    for number in range(given.rounds):
        for place, side in list(enumerate(SIDES))[:: 1 if number % 2 == 0 else -1]:
            # Other records for each: what sympy has seen once it finds again in its caches.
            count = given.records // (10 if side == "whole text" and tokens > 1000 else 1)
            seed = given.rounds * place + number
            records = list(records_of(kind, count, group, tokens, seed))
            said, cpu, seconds = clocked(side, records)
            spent[side].append((cpu, seconds))
            if side == "math-verify":
                differ += sum(a != b for a, b in zip(by_rule(records), said, strict=True))
    rates = {
        side: [1 / statistics.median(one[place] for one in own) for place in (0, 1)]
        for side, own in spent.items()
    }
    cells = [f"{cpu:10,.0f} {second:9,.0f}" for cpu, second in rates.values()]
    ratio = rates["ours"][0] / rates["math-verify"][0]
    print(f"{name:32} {' '.join(cells)} {ratio:8.1f} {differ:6}", flush=True)


def speed(given: argparse.Namespace) -> None:
    for side in SIDES:  # imports, and the worker's start
        clocked(side, list(records_of(latex, 8, 1, 10, -1)))
    print(f"{given.records} records a round, {given.rounds} rounds, long: {given.tokens} tokens")
    print(f"{'records a CPU-second, a second:':32} " + " ".join(f"{side:>20}" for side in SIDES))
    print(f"{'':95} faster differ")
    for name, kind in (("integers", integer), ("LaTeX", latex)):
        for length, tokens in (("short", 100), ("long", given.tokens)):
            compare(f"{name}, {length}, 16 a problem", kind, 16, tokens, given)
            compare(f"{name}, {length}, 1 a problem", kind, 1, tokens, given)


def write_stage_inputs(work: Path, count: int, tokens: int) -> None:
    """Responses in row groups of 64, as the stage ``sample`` writes them, and their problems."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    (work / "responses").mkdir()
    truths: dict[str, str] = {}
    schema = pa.schema(
        [
            *[("problem_id", pa.string()), ("sample_index", pa.int32())],
            *[("response", pa.string()), ("finish_reason", pa.string()), ("n_tokens", pa.int32())],
        ]
    )
    thoughts = [thinking(tokens * CHARACTERS_A_TOKEN, random.Random(i)) for i in range(64)]
    path = work / "responses" / "part-00000.parquet"
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        rows: list[dict[str, Any]] = []
        for index, (response, truth) in enumerate(records_of(latex, count, 8, 1, 0)):
            name = f"{index // 8:016x}"
            truths[name] = truth
            text = response.replace("<think>", "<think>" + thoughts[index % 64], 1)
            row = {"problem_id": name, "sample_index": index % 8, "response": text}
            rows.append(row | {"finish_reason": "stop", "n_tokens": tokens})
            if len(rows) == 64 or index == count - 1:
                writer.write_table(pa.Table.from_pylist(rows, schema=schema))
                rows = []
    known = [{"problem_id": name, "ground_truth": truth} for name, truth in truths.items()]
    pq.write_table(pa.Table.from_pylist(known), work / "clean.parquet")


def run_stage(work: Path) -> None:
    """The stage in this process; prints what it took."""
    from pcl_reasoner.core.stage import StageContext
    from pcl_reasoner.grade.config import GradeConfig
    from pcl_reasoner.grade.stage import grade

    (work / "out").mkdir()
    context = StageContext("grade", work / "apart.jsonl")
    began = time.perf_counter()
    counts = grade(GradeConfig(), {"responses": work, "problems": work}, work / "out", context)
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    cpu = time.process_time() + worker_seconds()
    print(json.dumps([counts.kept, seconds, cpu, peak, counts.info["correct_share"]]))


def memory(sizes: list[int], tokens: int) -> None:
    print("records    seconds   CPU-s   records/s   peak MiB   correct")
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            # In a process of its own, so that the stage's begins small.
            for step in ("write", "stage"):
                words = ["--step", step, folder, "--memory", str(size), "--tokens", str(tokens)]
                command = [sys.executable, __file__, *words]
                done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            kept, seconds, cpu, peak, correct = json.loads(done.stdout.splitlines()[-1])
            rate = kept / seconds
            print(
                f"{kept:7} {seconds:10.1f} {cpu:7.1f} {rate:11.0f} {peak:10.0f} {correct:7.1%}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=32_000, help="of a long response")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--memory", type=int, nargs="+", help="records that the stage grades")
    parser.add_argument("--step", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.step:
        step, folder = given.step
        if step == "write":
            write_stage_inputs(Path(folder), given.memory[0], given.tokens)
        else:
            run_stage(Path(folder))
        return
    from workload import machine

    print(machine("math-verify", "pyarrow"))
    if given.memory:
        memory(given.memory, given.tokens)
    else:
        speed(given)


if __name__ == "__main__":
    main()
