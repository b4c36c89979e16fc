"""Commands that only read: a damaged file of a run, or of a person, is one sentence for them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

from damages import CHANGES, SAME_SIZE
from end_to_end_helpers import folder_of
from trial import FIRM, FOUND, Bad, Outcome, Work


def other_json(file: Path, rng: Random) -> None:
    """Other JSON, or no JSON, than anybody expects."""
    texts = (b"[]", b"{}", b"null", b"1", b'"a"', b"[{}]", b"[" * 100_000, b'{"a": NaN}')
    odd = (*texts, b'{"problem": 5, "answer": [], "id": {}}', '{"a": 1}'.encode("utf-16"))
    file.write_bytes(rng.choice(odd) + b"\n")


def empty(file: Path, rng: Random) -> None:
    """Nothing is in it."""
    file.write_bytes(b"")


DAMAGES: tuple[Callable[[Path, Random], None], ...] = (*SAME_SIZE, *CHANGES, other_json, empty)
NAMED: dict[str, tuple[str, ...]] = {
    "contamination check FILE --against BENCHMARK --no-embedding --output OUT": (
        "*.parquet",
        "*.jsonl",
        "*.arrow",
    ),
    "contamination check PROBLEMS --against FILE --no-embedding --output OUT": (
        "benchmark*.jsonl",
        "*.parquet",
        "*.json",
    ),
    "contamination check PROBLEMS --against BENCHMARK --no-embedding --review FILE --output OUT": (
        "review.jsonl",
    ),
    "rescore policy=FILE --output OUT": ("generations.jsonl",),
    "rescore RESULTS --tokenizer FOLDER --output OUT": ("tokenizer*.json",),
    "recount FILE": ("*.parquet", "*.jsonl"),
    "recount FOLDER": ("*.parquet",),
    "diff RECIPE FILE": ("mindformers.yaml",),
}
"""Command -> what its FILE is a damaged copy of; FOLDER is the folder of the copy."""
OF_RUNS = ("status", "report", "plan", "verify", "run --dry-run", "preview")


def read(work: Work) -> Outcome:
    """Damage a file, and give it to a command that reads it."""
    words = _of_run(work) if work.rng.random() < 0.5 else _of_file(work)
    answer = work.call(*words)  # an exit code of 0 is right where the file is not needed
    if answer.code in (1, 2) and not answer.text.strip():
        raise Bad(f"exit code {answer.code} without a word")
    return Outcome(work.target, FOUND if answer.code else FIRM, answer.text[-300:])


def _of_run(work: Work) -> list[str]:
    work.copy_runs()
    title = work.rng.choice(sorted(work.scene.plain))
    folder = folder_of(work.runs, title)
    file = _damaged(work, [one for one in folder.rglob("*") if one.is_file()])
    name = work.rng.choice(OF_RUNS)
    work.target = f"{name}: {file.relative_to(work.runs)}, {work.target}"
    if name == "verify":
        return ["verify", "--runs", str(work.runs)]
    first, *more = name.split()
    return [first, str(work.recipe(title)), "--runs", str(work.runs), *more]


def _of_file(work: Work) -> list[str]:
    runs = work.scene.runs
    line = work.rng.choice(sorted(NAMED))
    files = {one for kind in NAMED[line] for one in runs.rglob(kind) if one.is_file()}
    chosen = work.rng.choice(sorted(one for one in files if one.stat().st_size))
    copy = work.folder / "runs" / "copy"
    shutil.copytree(chosen.parent, copy)
    file = _damaged(work, [copy / chosen.name])
    work.target = f"{line}: {chosen.relative_to(runs)}, {work.target}"
    meant = {
        "FILE": file,
        "FOLDER": copy,
        "OUT": work.runs / "output",
        "BENCHMARK": folder_of(runs, "v1_sft/synthetic") / "benchmark.jsonl",
        "PROBLEMS": folder_of(runs, "v15_opg/unique") / "problems.parquet",
        "RESULTS": folder_of(runs, "v1_sft/evaluate") / "generations.jsonl",
        "RECIPE": work.scene.recipe("v1_sft"),
    }
    words = []
    for word in line.split():
        before, sign, last = word.rpartition("=")
        words.append(f"{before}{sign}{meant.get(last, last)}")
    return words


def _damaged(work: Work, files: list[Path]) -> Path:
    file = work.rng.choice(sorted(one for one in files if one.stat().st_size))
    change = work.rng.choice(DAMAGES)
    change(file, work.rng)
    work.target = change.__name__
    return file
