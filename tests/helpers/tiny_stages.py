"""Stages small enough to read, for tests of the core; ``install`` puts them beside the real ones.

As a program it is ``pclr-ms`` with these stages: ``python tiny_stages.py run recipe.yaml …``.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from pcl_reasoner import stages
from pcl_reasoner.core.append_log import AppendLog
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.stage import Counts, FileName, StageConfig, StageContext

TRACE = "TINY_TRACE"
"""Environment variable: a file that notes every piece of work, outside all artifacts."""


SECONDS = "TINY_SECONDS"
"""Environment variable: how long a slow record takes; it changes no result."""


OFFSET = "TINY_OFFSET"
"""Environment variable: added to every number, as if a server answered differently."""

INTERRUPTED = "TINY_INTERRUPTED"
"""Environment variable: the piece of work at whose begin Ctrl-C is pressed."""


def trace(word: str) -> None:
    if os.environ.get(INTERRUPTED) == word.split()[0]:
        raise KeyboardInterrupt
    if TRACE in os.environ:
        with Path(os.environ[TRACE]).open("a") as handle:
            handle.write(word + "\n")


class NumbersConfig(StageConfig):
    n: int = Field(3, gt=0)
    seed: int
    """Added to every number."""
    native: dict[str, object] = Field(default_factory=dict)


def numbers(
    config: NumbersConfig, inputs: Mapping[str, Path], output: Path, context: StageContext
) -> Counts:
    trace("numbers")
    offset = int(os.environ.get(OFFSET, "0"))
    values = [config.seed + offset + i for i in range(config.n)]
    (output / "numbers.json").write_text(json.dumps(values))
    return Counts(unit="numbers", read=config.n, kept=config.n)


def fill(path: Path) -> None:
    """Write until the disk is full."""
    with suppress(OSError), path.open("wb", buffering=0) as handle:
        for _ in range(1024):
            handle.write(b"x" * 4096)


class HalfConfig(StageConfig):
    rate: float = Field(0.5, gt=0, le=1)
    max_malformed: float = 1.0
    prompt: FileName | None = None
    against: list[FileName] = Field(default_factory=list)
    fault: str = ""
    """What goes wrong: stage, value, counts, disk, library, graph."""


def half(
    config: HalfConfig, inputs: Mapping[str, Path], output: Path, context: StageContext
) -> Counts:
    """Keep even numbers, drop odd ones, refuse multiples of five as malformed."""
    trace("half")
    if config.fault == "stage":
        raise StageError("the moon is full. Wait for it to wane.")
    if config.fault == "value":
        raise ValueError("seven")
    if config.fault == "library":
        fill(output / "big.bin")
        raise RuntimeError("no room at the inn")
    if config.fault == "graph":
        from wrong_graph import compile_it

        compile_it()
    if config.fault == "disk":
        (output / "big.bin").write_bytes(b"x" * (8 << 20))
    values = json.loads((inputs["numbers"] / "numbers.json").read_text())
    malformed = [value for value in values if value % 5 == 0]
    for value in malformed:
        context.quarantine("numbers.json", value, "malformed_five", str(value))
    even = [value for value in values if value % 5 and value % 2 == 0]
    (output / "even.json").write_text(json.dumps(even))
    if malformed:
        context.warn(f"{len(malformed)} multiples of five")
    odd = len(values) - len(even) - len(malformed)
    dropped = {"odd": odd, "malformed_five": len(malformed)}
    read = len(values) + (1 if config.fault == "counts" else 0)
    return Counts(unit="numbers", read=read, kept=len(even), dropped=dropped)


class SlowConfig(StageConfig):
    n: int = 5


def slow(
    config: SlowConfig, inputs: Mapping[str, Path], output: Path, context: StageContext
) -> Counts:
    """Write n records one by one; goes on where it was cut off."""
    log = AppendLog(output / "records.jsonl")
    there = {record["key"] for record in log}
    for key in range(config.n):
        if key not in there:
            log.append([{"key": key, "value": key * key}])
            trace(f"slow {key}")
            time.sleep(float(os.environ.get(SECONDS, "0")))
        context.progress.update(key + 1, config.n, "records")
    log.close()
    return Counts(unit="records", read=config.n, kept=config.n)


class PageConfig(StageConfig):
    page: ClassVar[str | None] = "report.html"


def page(
    config: PageConfig, inputs: Mapping[str, Path], output: Path, context: StageContext
) -> Counts:
    trace("page")
    lines = [str(context.recipe["title"]), *sorted(inputs)]
    (output / "report.html").write_text("\n".join(lines))
    return Counts(unit="stages", read=len(inputs), kept=len(inputs))


TINY = {
    "numbers": stages.Stage(__name__, "numbers", {"source?": None}, lists={"source"}),
    "half": stages.Stage(__name__, "half", {"numbers": "numbers"}),
    "slow": stages.Stage(__name__, "slow", {"half": "half"}, resumable=True),
    "report": stages.Stage(__name__, "page", {stages.ALL_STAGES: stages.ALL_STAGES}),
}

LAUNCH = """
name: laptop
title: this machine
profile: paper
verified: by these tests
"""

RECIPE = """
name: tiny
title: Numbers to even numbers
seed: 1
stages:
  numbers: {n: 8}
  half: {}
  slow: {}
  report: {}
"""


def write(folder: Path, recipe: str = RECIPE, launch: str = LAUNCH) -> list[str]:
    """Write a recipe and a launch file; returns the words that name them on the command line."""
    (folder / "tiny.yaml").write_text(recipe)
    (folder / "here.yaml").write_text(launch)
    return [str(folder / "tiny.yaml"), "--launch", str(folder / "here.yaml")]


if __name__ == "__main__":
    import sys

    from pcl_reasoner.cli.main import main

    stages.STAGES.update(TINY)
    raise SystemExit(main(sys.argv[1:]))
