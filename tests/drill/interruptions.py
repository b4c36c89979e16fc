"""Kills, full and broken disks, wrong clocks: a run is disturbed at one operation on its files.

A trial makes one stage, or a few, again. At one write, rename, fsync … something happens. Then the
recipe is run without the disturbance, and must end in what the undisturbed run has.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from dataclasses import dataclass

from end_to_end_helpers import folder_of
from scene import BUILD, QUICK_SECONDS
from trial import FIRM, FOUND, PATIENCE, Answer, Bad, Counts, NotReached, Outcome, Work, weighted

LONGEST = 8.0
"""Seconds of the stages that one trial makes again, but for one stage that takes longer."""
START = 0.7
"""Seconds until a command begins to work."""


@dataclass(frozen=True)
class Task:
    """A command to disturb.

    Args:
        title: The stage that it makes again, ``recipe/stage``.
        until: The last stage that it makes again.
        way: ``missing``: the artifact is not there; ``from``: the command repeats it.
        more: More words.
    """

    title: str
    until: str
    way: str
    more: tuple[str, ...] = ()

    def __str__(self) -> str:
        """As the log has it."""
        return f"{self.title} {self.way}" + (f" until {self.until}" if self.way == "from" else "")

    def words(self, work: Work) -> list[str]:
        """The command."""
        plain = self.plain_words(work)
        if self.way == "missing":
            return plain
        return [*plain, "--from", self.title.split("/")[1], "--until", self.until.split("/")[1]]

    def plain_words(self, work: Work) -> list[str]:
        """The command that ends what was begun."""
        return ["run", str(work.recipe(self.title)), "--runs", str(work.runs), *self.more]

    def prepare(self, work: Work) -> None:
        """Copy the undisturbed run, without the artifact if it is to be missing."""
        work.copy_runs()
        if self.way == "missing":
            shutil.rmtree(folder_of(work.runs, self.title))


def choose(work: Work) -> Task:
    """Choose a stage, and whether ``--from`` repeats it or it is not there."""
    title = weighted(work.rng, work.scene.plain)
    if work.rng.random() < 0.5:
        return Task(title, title, "missing")
    chosen = work.rng.choice([one for one in work.scene.plain if _is_short(work, title, one)])
    return Task(title, chosen, "from")


def _is_short(work: Work, title: str, until: str) -> bool:
    repeated = work.scene.between(title, until)
    seconds = sum(work.scene.seconds[one] for one in repeated)
    limit = QUICK_SECONDS if work.scene.quick else LONGEST
    return bool(repeated) and (title == until or seconds < limit)


def operations(work: Work, task: Task, how: str) -> int:
    """About the number of operations of a task.

    Each stage is made once without disturbance to count them; other commands differ a little.
    """
    titles = work.scene.between(task.title, task.until)
    return sum(_counted(work, title, how, task.more) for title in titles)


def _counted(work: Work, title: str, how: str, more: tuple[str, ...]) -> int:
    kept = Counts(BUILD / "operations.json")
    name = f"{title} {'reads' if how == 'READ' else 'writes'}"
    number = kept.get(name)
    if number is None:
        counting = Work(work.scene, work.folder.with_name(f"{work.folder.name}-counted"), work.rng)
        task = Task(title, title, "missing", more)
        task.prepare(counting)
        answer = counting.call(*task.words(counting), **counting.disturbance(counting.runs, how, 0))
        if answer.code:
            raise Bad(f"the undisturbed command fails:\n{answer.text}")
        counting.must_be_whole()
        number = counting.operations()
        shutil.rmtree(counting.folder)
        kept.keep(name, number)
    return number


def kill(work: Work) -> Outcome:
    """SIGKILL, for one process or for all, at an operation or at any time."""
    return kill_task(work, choose(work))


def kill_task(work: Work, task: Task) -> Outcome:
    """Kill a command, take it up, and compare."""
    how = work.rng.choice(["KILL", "KILL_AFTER", "STOP", "time", "time for all"])
    if how.startswith("time"):
        task.prepare(work)
        seconds = work.rng.uniform(0, START + 1.5 * work.scene.seconds[task.title])
        work.target = f"{task}, {how}, after {seconds:.2f} s"
        killed = _kill_after(work, task, seconds, how)
    else:
        at = work.rng.randint(1, operations(work, task, how))
        task.prepare(work)
        work.target = f"{task}, {how} at operation {at}"
        killed = kill_at(work, task, how, at)
    return taken_up(work, task, killed)


def kill_at(work: Work, task: Task, how: str, at: int) -> Answer:
    """Kill a command at an operation: one process, or for ``STOP`` all of them."""
    process = work.start(*task.words(work), **work.disturbance(work.runs, how, at))
    until = time.monotonic() + PATIENCE
    while how == "STOP" and process.poll() is None and not work.is_reached():
        if time.monotonic() > until:
            break
        time.sleep(0.005)
    if how == "STOP":
        work.kill_all()
    return work.ended(process)


def _kill_after(work: Work, task: Task, seconds: float, how: str) -> Answer:
    process = work.start(*task.words(work))
    time.sleep(seconds)
    if how == "time":
        os.kill(process.pid, signal.SIGKILL)
    else:
        work.kill_all()
    return work.ended(process)


def taken_up(work: Work, task: Task, ended: Answer) -> Outcome:
    """Run the recipe without disturbance, and compare.

    Raises:
        NotReached: The disturbance did not come.
    """
    if work.state.exists() and not work.is_reached():
        raise NotReached
    work.must_be_sane(ended, killed=True)
    answer = work.call(*task.plain_words(work))
    if answer.code:
        raise Bad(f"it cannot be taken up after\n{ended.text}\n{answer.text}")
    work.must_be_whole()
    said = "error:" in ended.text
    return Outcome(work.target, FOUND if said else FIRM, ended.text[-300:] if said else "")


def fault(how: str, work: Work) -> Outcome:
    """A write or a read fails, once or from then on."""
    task = choose(work)
    at = work.rng.randint(1, operations(work, task, how))
    task.prepare(work)
    lasts = {"DRILL_LASTS": "1"} if work.rng.random() < 0.5 else {}
    work.target = f"{task}, {how} at operation {at}{' and all later ones' if lasts else ''}"
    answer = work.call(*task.words(work), **work.disturbance(work.runs, how, at, **lasts))
    if answer.code == 0:
        work.must_be_whole()
    elif "error: " not in answer.text.lower():
        raise Bad(f"exit code {answer.code} without an error in words:\n{answer.text}")
    return taken_up(work, task, answer)


def full_disk(work: Work) -> Outcome:
    """No space is left."""
    return fault("ENOSPC", work)


def failing_writes(work: Work) -> Outcome:
    """The disk does not write."""
    return fault("EIO", work)


def failing_reads(work: Work) -> Outcome:
    """The disk does not read."""
    return fault("READ", work)


def clock(work: Work) -> Outcome:
    """The wall clock jumps in the middle of a run, or is wrong from its beginning."""
    task = choose(work)
    at = work.rng.randint(1, operations(work, task, "CLOCK"))
    seconds = work.rng.choice([-1, 1]) * work.rng.choice([2, 3600, 86400, 10**9])
    task.prepare(work)
    work.target = f"{task}, clock {seconds:+} s from operation {at} on"
    wrong = work.disturbance(work.runs, "CLOCK", at, DRILL_SECONDS=str(seconds))
    answer = work.call(*task.words(work), **wrong)
    if answer.code:
        raise Bad(answer.text)
    return taken_up(work, task, answer)
