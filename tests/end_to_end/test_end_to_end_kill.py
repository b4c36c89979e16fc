"""One run, killed over and over and taken up again by the same command, ends in the same bytes.

About 200 s on two cores: 20 kills, most of them while something slow runs.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from end_to_end_helpers import (
    MARK,
    Whole,
    assert_no_process_left,
    command,
    environment,
    manifests,
    payload,
)
from paths import HELPERS

pytestmark = pytest.mark.slow

KILL_AT = str(HELPERS / "end_to_end_kill_at.py")
PATIENCE = 180
"""Seconds after which a moment is not coming any more."""


@dataclass(frozen=True)
class Moment:
    """When and how a run is ended.

    Args:
        name: In words.
        come: Says from the runs folder and the seconds since the start whether it is now; None
            when the program itself (end_to_end_kill_at.py) knows.
        how: The signal.
    """

    name: str
    come: Callable[[Path, float], bool] | None
    how: signal.Signals = signal.SIGKILL


def there(pattern: str, how: signal.Signals = signal.SIGKILL) -> Moment:
    """Something has appeared in the runs folder."""
    return Moment(f"{pattern} is there", lambda runs, _: any(runs.glob(pattern)), how)


def lines(pattern: str, count: int, how: signal.Signals = signal.SIGKILL) -> Moment:
    """A file has so many lines."""

    def come(runs: Path, _: float) -> bool:
        return any(path.read_bytes().count(b"\n") >= count for path in runs.glob(pattern))

    return Moment(f"{pattern} has {count} lines", come, how)


def after(seconds: float) -> Moment:
    """Whatever happens then."""
    return Moment(f"after {seconds:.2f} s", lambda _, passed: passed >= seconds)


def in_commit(moment: str, title: str) -> Moment:
    """Inside the commit of a stage."""
    return Moment(f"{moment} {title}", None)


def moments() -> list[Moment]:
    """In the order of the walk; those at random times come where a slow stage is at work."""
    rng = random.Random(15)
    return [
        there("v1_sft/synthetic-*"),
        in_commit("renamed", "v1_sft/convert"),
        there("v1_sft/tokenize-*"),
        there("v1_sft/train-*.partial/mindformers.yaml"),
        after(rng.uniform(1, 5)),
        lines("v1_sft/train-*/metrics.jsonl", 1),
        lines("v1_sft/train-*/metrics.jsonl", 3),
        in_commit("whole_manifest", "v1_sft/train"),
        in_commit("renamed", "v1_sft/export"),
        in_commit("half_manifest", "v15_opg/convert"),
        in_commit("whole_manifest", "v15_opg/difficulty"),
        there("v15_opg/contamination-*"),
        after(rng.uniform(1, 5)),
        lines("v15_opg/sample-*/responses.partial.jsonl", 8),
        lines("v15_opg/sample-*/responses.partial.jsonl", 24, signal.SIGTERM),
        in_commit("half_manifest", "v15_opg/sample"),
        in_commit("whole_manifest", "v15_opg/grade"),
        after(rng.uniform(1, 5)),
        lines("v15_opg/train-*/metrics.jsonl", 2, signal.SIGINT),
        lines("v15_opg/train-*/metrics.jsonl", 5),
        there("v15_opg/train-*/checkpoint"),
        lines("v15_opg/evaluate_before-*/generations.partial.jsonl", 8),
        in_commit("whole_manifest", "v15_opg/report"),
    ]


def start(
    moment: Moment, recipe: Path, runs: Path, words: tuple[str, ...]
) -> subprocess.Popen[str]:
    program = None
    if moment.come is None:
        program = [sys.executable, KILL_AT, *moment.name.split()]
    return subprocess.Popen(
        command("run", recipe, "--runs", runs, *words, program=program),
        env=environment(**{MARK: str(runs)}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_interrupts,
    )


def heed_interrupts() -> None:
    """Undo what a shell does to its background jobs: they inherit that SIGINT is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def at_work(process: subprocess.Popen[str], runs: Path) -> bool:
    """Has it begun? Before, it heeds no signal yet, and what is there is of the last one."""
    return any(f"process {process.pid} on" in lock.read_text() for lock in runs.glob("*/.lock"))


def end(process: subprocess.Popen[str], moment: Moment, runs: Path) -> tuple[str, str]:
    """Wait for the moment and send the signal; returns what the process has said."""
    started = time.monotonic()
    while moment.come and not (
        at_work(process, runs) and moment.come(runs, time.monotonic() - started)
    ):
        assert process.poll() is None, f"{moment.name}: ended before: {process.communicate()}"
        assert time.monotonic() - started < PATIENCE, f"{moment.name}: never came"
        time.sleep(0.002)
    if moment.come:
        process.send_signal(moment.how)
    return process.communicate(timeout=PATIENCE)


def cut_off(moment: Moment, recipe: Path, runs: Path, *words: str) -> None:
    """Take the run up, end it at the moment, and look at what it leaves."""
    process = start(moment, recipe, runs, words)
    try:
        out, err = end(process, moment, runs)
    finally:
        process.kill()
    if moment.how is signal.SIGKILL:
        assert process.returncode == -signal.SIGKILL, f"{moment.name}: {out}{err}"
    else:
        assert process.returncode == 130, f"{moment.name}: {out}{err}"
        assert err.strip() == "interrupted; run the same command again to resume"
    assert_no_process_left(str(runs))
    # What has its final name is whole, whenever the kill came.
    payload(runs)


@pytest.mark.long
def test_twenty_kills_and_the_same_bytes(whole: Whole, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    killed = moments()
    assert sum(moment.how is signal.SIGKILL for moment in killed) >= 20
    for moment in killed:
        began = time.monotonic()
        cut_off(moment, whole.recipe, runs)
        print(f"{moment.name}: {time.monotonic() - began:.1f} s")
    answer = subprocess.run(
        command("run", whole.recipe, "--runs", runs),
        env=environment(**{MARK: str(runs)}),
        capture_output=True,
        text=True,
    )
    assert (answer.returncode, answer.stderr) == (0, "")
    assert_no_process_left(str(runs))
    assert not list(runs.glob("*/*.partial"))
    assert payload(runs) == payload(whole.runs)
    ours, theirs = manifests(runs), manifests(whole.runs)
    assert {title: one["fingerprint"] for title, one in ours.items()} == {
        title: one["fingerprint"] for title, one in theirs.items()
    }
    assert {title: one["counts"] for title, one in ours.items()} == {
        title: one["counts"] for title, one in theirs.items()
    }
