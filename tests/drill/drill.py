"""Chooses trials, runs them side by side, and keeps the log."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click
import commands
import damages
import hosts
import interruptions
import log
import models
import neighbours
import readers
import remains
import served
import table
from scene import BUILD, Scene, code_hash, scene
from trial import BAD, Trial, attempt

KINDS: dict[str, tuple[Trial, str]] = {
    "kills": (
        interruptions.kill,
        "`run` is killed by SIGKILL, one process or all, at any of its file operations or at any "
        "time, in each stage, with and without `--from`",
    ),
    "kills beside a server": (served.kill, "the same while a server answers"),
    "commands": (
        commands.disturb,
        "kills, a full disk and a failing disk in `eval`, `rescore`, `convert` and `contamination`",
    ),
    "damages": (
        damages.damage,
        "a file of a finished stage is changed, cut, deleted, replaced; then `run`, a stage that "
        "reads it, or `verify`",
    ),
    "silent damages": (
        damages.silent_damage,
        "the same, but size and times stay, as if the disk did it; the commands have `--verify`",
    ),
    "damaged remains": (
        remains.damage,
        "a stage that resumes is killed, and a file that it left is damaged",
    ),
    "readers": (
        readers.read,
        "a damaged file of a run, or of a person, is given to `status`, `report`, `plan`, "
        "`verify`, `preview`, `rescore`, `recount`, `diff` or `contamination check`",
    ),
    "damaged hashes": (damages.hash_memory, "`.hashes.json` is damaged"),
    "full disk": (interruptions.full_disk, "ENOSPC at any write, once or from then on"),
    "failing writes": (interruptions.failing_writes, "EIO at any write, once or from then on"),
    "failing reads": (interruptions.failing_reads, "EIO at any read, once or from then on"),
    "odd answers": (
        served.odd_answers,
        f"a fifth of a server's answers, or all, are odd in one of {len(served.KINDS)} ways",
    ),
    "odd models": (
        models.odd_folder,
        f"a model's folder is odd in one of {len(models.KINDS)} ways; `run`, `convert` or `eval`",
    ),
    "clocks": (interruptions.clock, "the clock jumps by seconds, hours or years, both ways"),
    "hosts' clocks": (hosts.clocks, "two hosts train, the clock of one is wrong"),
    "two runners": (neighbours.two_runners, "two or three commands at once on one folder"),
    "another user": (neighbours.another_user, "a run that others may read, or only see"),
    "umask 077": (neighbours.hiding_umask, "a run whose files are for its owner only"),
}
"""Kind -> its trial, and what it does; in the order of the table."""
SLOW_KINDS = ("hosts' clocks",)
"""Kinds that a quick drill leaves out."""


@click.command()
@click.argument("count", type=click.IntRange(min=0), default=0)
@click.option("--kind", "kinds", multiple=True, type=click.Choice(list(KINDS)), help="Only these.")
@click.option("--seed", help="Repeat one trial of the log.")
@click.option("--again", is_flag=True, help="Repeat the bad trials of the log.")
@click.option("--table", "only_table", is_flag=True, help="Write the log's table, run nothing.")
@click.option("--quick", is_flag=True, help="Disturb only stages that take less than a second.")
@click.option("--fixed", is_flag=True, help="The same trials each time; without it, by the clock.")
@click.option("--jobs", type=click.IntRange(min=1), default=os.cpu_count(), show_default=True)
@click.option(
    "--log", "path", type=click.Path(path_type=Path), default=BUILD / "log.jsonl", show_default=True
)
def main(
    count: int,
    kinds: tuple[str, ...],
    seed: str | None,
    again: bool,
    only_table: bool,
    quick: bool,
    fixed: bool,
    jobs: int,
    path: Path,
) -> int:
    """Run trials until the log has COUNT of each kind for this version of the code."""
    if only_table:
        table.write(log.read(path), {kind: what for kind, (_, what) in KINDS.items()})
        return 0
    place, code = scene(quick), code_hash()
    if seed or again:
        todo = [seed] if seed else [one["seed"] for one in log.read(path) if one["verdict"] == BAD]
    else:
        every = tuple(kind for kind in KINDS if not (quick and kind in SLOW_KINDS))
        begin = "0" if fixed else f"{time.time_ns() // 1_000_000:x}"
        todo = list(_missing(log.read(path), code, kinds or every, count, begin))
    print(f"{len(todo)} trials, log {path}", flush=True)

    def run(one: str) -> str:
        return _run(place, path, code, one)

    with ThreadPoolExecutor(jobs) as threads:
        verdicts = Counter(threads.map(run, todo))
    print("; ".join(f"{number} {verdict}" for verdict, number in sorted(verdicts.items())))
    return int(BAD in verdicts)


def _missing(
    done: list[dict[str, Any]], code: str, kinds: tuple[str, ...], count: int, begin: str
) -> Iterator[str]:
    """Seeds of the trials that the log lacks, one kind after the other in turn."""
    have = Counter(one["kind"] for one in done if one["code"] == code)
    for number in range(count):
        for kind in kinds:
            if number >= have[kind]:
                yield f"{begin}-{kind}-{number}"


def _run(place: Scene, path: Path, code: str, seed: str) -> str:
    kind = seed.split("-")[1]
    began = time.monotonic()
    outcome = attempt(KINDS[kind][0], place, seed)
    seconds = time.monotonic() - began
    log.add(path, kind, seed, code, outcome, seconds)
    print(f"{outcome.verdict:12} {seconds:5.1f} s  {seed}  {outcome.target}", flush=True)
    return outcome.verdict
