"""Kills, full and failing disks for the commands beside ``run``: the same output as without.

After a kill every file that has its final name must be complete, and the same command again must
give what an undisturbed one gives. Files that differ between two undisturbed runs, because they
show times, are compared by name only.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

from end_to_end_helpers import folder_of
from trial import FIRM, FOUND, PATIENCE, Answer, Bad, NotReached, Outcome, Work

from pcl_reasoner.core import artifact

FOLDER = "output"
OUTPUT = f"{FOLDER}/result"


def words_of(name: str, work: Work) -> list[str]:
    """The command of a name; it writes OUTPUT in the folder of the trial."""
    runs, output = work.scene.runs, str(work.folder / OUTPUT)
    (work.folder / FOLDER).mkdir(exist_ok=True)
    evaluated = folder_of(runs, "v1_sft/evaluate")
    benchmark = str(folder_of(runs, "v1_sft/synthetic") / "benchmark.jsonl")
    model = str(folder_of(runs, "v1_sft/export"))
    problems = str(folder_of(runs, "v15_opg/unique") / "problems.parquet")
    recipe = str(work.scene.recipe("v1_sft"))
    found = {
        "eval": ["eval", f"policy={model}", "--benchmark", f"b={benchmark}", "--recipe", recipe],
        "rescore": ["rescore", f"policy={evaluated / 'generations.jsonl'}"],
        "contamination check": ["contamination", "check", problems, "--against", benchmark],
        "contamination fingerprint": ["contamination", "fingerprint", benchmark],
        "convert": ["convert", model, output, "--to", "mindformers"],
    }[name]
    if name == "contamination check":
        found += ["--no-embedding"]
    if name == "eval":
        found += ["--runs", str(runs)]
    return found if name == "convert" else [*found, "--output", output]


QUICK_NAMES = ("rescore", "contamination check", "convert")
NAMES = (*QUICK_NAMES, "eval", "contamination fingerprint")
HOWS = ("KILL", "KILL_AFTER", "STOP", "time", "ENOSPC", "EIO", "READ")
FAULTS = ("ENOSPC", "EIO", "READ")


def disturb(work: Work) -> Outcome:
    """Disturb a command, and give it again."""
    name = work.rng.choice(QUICK_NAMES if work.scene.quick else NAMES)
    how = work.rng.choice(HOWS)
    whole = _undisturbed(work, name)
    at = work.rng.randint(1, whole["reads" if how == "READ" else "writes"])
    work.target = f"{name}, {how}" + f" at operation {at}" * (how != "time")
    words = words_of(name, work)
    ended = _disturbed(work, words, how, at, whole["seconds"])
    work.must_be_sane(ended, killed=how not in FAULTS)
    if how != "time" and not work.is_reached():
        raise NotReached
    if how in FAULTS and ended.code and "error: " not in ended.text.lower():
        raise Bad(f"exit code {ended.code} without an error in words:\n{ended.text}")
    _compare(work, whole["files"], missing_is_fine=ended.code != 0)
    answer = work.call(*words)
    if answer.code not in (0, 3) and "already exists" not in answer.text:
        raise Bad(f"the same command again fails:\n{answer.text}\nafter\n{ended.text}")
    _compare(work, whole["files"], missing_is_fine=False)
    return Outcome(work.target, FOUND if "error: " in ended.text else FIRM, ended.text[-300:])


def _disturbed(work: Work, words: list[str], how: str, at: int, seconds: float) -> Answer:
    more = {} if how == "time" else work.disturbance(work.folder / FOLDER, how, at)
    if how == "READ":
        more["DRILL_BELOW"] = str(work.scene.runs)
    process = work.start(*words, **more)
    if how == "time":
        time.sleep(work.rng.uniform(0, seconds))
        os.kill(process.pid, signal.SIGKILL)
    until = time.monotonic() + PATIENCE
    while how == "STOP" and process.poll() is None and time.monotonic() < until:
        if work.is_reached():
            work.kill_all()
        time.sleep(0.005)
    return work.ended(process)


def _compare(work: Work, whole: dict[str, str], missing_is_fine: bool) -> None:
    """Every file that is there is as it should be, but for temporary ones."""
    now = _files(work.folder / OUTPUT)
    for name, content in whole.items():
        if name not in now and not missing_is_fine:
            raise Bad(f"{name}: missing")
        if name in now and content and now[name] != content:
            raise Bad(f"{name}: not complete, or other than it should be")
    if not missing_is_fine:
        beside = {one.name for one in (work.folder / FOLDER).iterdir()} - {Path(OUTPUT).name}
        if more := beside | (now.keys() - whole.keys()):
            raise Bad(f"in addition: {sorted(more)}")


def _files(output: Path) -> dict[str, str]:
    """Name -> SHA-256 of the files that a command wrote, without hidden and unfinished ones."""
    if output.is_file():
        return {"": artifact.hash_file(output)}
    files = (one for one in output.rglob("*") if one.is_file())
    names = {one.relative_to(output).as_posix(): one for one in files}
    return {
        name: artifact.hash_file(one)
        for name, one in sorted(names.items())
        if not any(part.startswith(".") or ".partial" in part for part in Path(name).parts)
    }


def _undisturbed(work: Work, name: str) -> dict[str, Any]:
    """What a command writes, and its numbers of operations; found once."""
    kept = work.scene.folder / f"{name}.json"
    if not kept.exists():
        found = [_once(work, name, how) for how in ("KILL", "READ")]
        same = {
            file: content if content == found[1]["files"][file] else ""
            for file, content in found[0]["files"].items()
        }
        value = {
            "files": same,
            "writes": found[0]["operations"],
            "reads": found[1]["operations"],
            "seconds": found[0]["seconds"],
        }
        kept.write_text(json.dumps(value))
    whole: dict[str, Any] = json.loads(kept.read_text())
    return whole


def _once(work: Work, name: str, how: str) -> dict[str, Any]:
    folder = work.folder.with_name(f"{work.folder.name}-{how}")
    shutil.rmtree(folder, ignore_errors=True)
    undisturbed = Work(work.scene, folder, work.rng)
    below = work.scene.runs if how == "READ" else folder / FOLDER
    began = time.monotonic()
    answer = undisturbed.call(
        *words_of(name, undisturbed), **undisturbed.disturbance(below, how, 0)
    )
    if answer.code not in (0, 3):
        raise Bad(f"the undisturbed command fails:\n{answer.text}")
    found = {
        "files": _files(folder / OUTPUT),
        "operations": undisturbed.operations(),
        "seconds": time.monotonic() - began,
    }
    shutil.rmtree(folder)
    return found
