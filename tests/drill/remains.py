"""What a killed run left is damaged before the run is taken up again.

A stage that resumes must not take what was damaged for what it wrote. It makes the same result as
the undisturbed run, or says in words what is damaged, and then makes it after what the words ask.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from damages import CHANGES, SAME_SIZE
from end_to_end_helpers import manifests
from interruptions import Task, kill_at, operations
from trial import FIRM, FOUND, Bad, NotReached, Outcome, Work, weighted

from pcl_reasoner.stages import STAGES

NOT_COMPARED = ("metrics.jsonl", "probe.jsonl", "seconds.jsonl")
"""Figures for people: a changed digit in them is not found; docs/reliability.md says so."""


def damage(work: Work) -> Outcome:
    """Kill a stage that resumes, damage one of its files, and take it up."""
    kinds = {title: one["stage"] for title, one in manifests(work.scene.runs).items()}
    plain = work.scene.plain.items()
    title = weighted(work.rng, {one: took for one, took in plain if STAGES[kinds[one]].resumable})
    task = Task(title, title, "missing")
    at = work.rng.randint(1, operations(work, task, "KILL"))
    task.prepare(work)
    work.target = f"{title}, killed at operation {at}"
    work.must_be_sane(kill_at(work, task, "STOP", at), killed=True)
    file = _choose(work)
    change = work.rng.choice((*SAME_SIZE, *CHANGES))
    work.target += f", {file.relative_to(work.runs)}: {change.__name__}"
    file.chmod(0o600)
    change(file, work.rng)
    return _taken_up(work, task)


def _choose(work: Work) -> Path:
    found = [one for one in work.runs.glob("*/*.partial/**/*") if one.is_file()]
    found = [one for one in found if one.stat().st_size and one.name not in NOT_COMPARED]
    if not found:
        raise NotReached
    return work.rng.choice(sorted(found))


def _taken_up(work: Work, task: Task) -> Outcome:
    """Run; after an error run again, and after a second one without what was left."""
    said = []
    for attempt in range(3):
        answer = work.call(*task.plain_words(work))
        if answer.code == 0:
            break
        if "error: " not in answer.text.lower():
            raise Bad(f"exit code {answer.code} without an error in words:\n{answer.text}")
        said.append(answer.text)
        if attempt == 1:
            if not any(word in answer.text.lower() for word in ("delete", "remove")):
                raise Bad(f"it does not say what to do:\n{answer.text}")
            for left in work.runs.glob("*/*.partial"):
                shutil.rmtree(left)
    else:
        raise Bad("it cannot be taken up:\n" + "\n".join(said))
    work.must_be_whole()
    return Outcome(work.target, FOUND if said else FIRM, said[0][-300:] if said else "")
