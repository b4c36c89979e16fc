"""Two runners at once, another user's files, and an umask that hides everything from others."""

from __future__ import annotations

import os
import shutil
import stat
import time
from pathlib import Path

from end_to_end_helpers import folder_of
from interruptions import Task, choose
from trial import FIRM, FOUND, Answer, Bad, Outcome, Work, weighted

IN_USE = "in use by"
STRANGER = 4321
"""A user id without a name."""
NO_POWERS = [
    "setpriv",
    "--bounding-set=-dac_override,-dac_read_search,-fowner,-chown",
    "--inh-caps=-all",
]
"""Root without the right to read and write everything is as any user."""


def two_runners(work: Work) -> Outcome:
    """Two or three commands on the same folder, at about the same time."""
    first, others = choose(work), [_neighbour(work) for _ in range(work.rng.choice([1, 1, 2]))]
    first.prepare(work)
    pauses = [work.rng.choice([0.0, work.rng.uniform(0, 1.5)]) for _ in others]
    work.target = f"{first}, and beside it {'; '.join(' '.join(one) for one in others)}"
    started = [work.start(*first.words(work))]
    for words, pause in zip(others, pauses, strict=True):
        time.sleep(pause)
        recipe = str(work.recipe(first.title)) if words[0] in ("run", "status") else ""
        started.append(work.start(*words, *([recipe] if recipe else []), "--runs", work.runs))
    answers = [work.ended(process) for process in started]
    for answer in answers:
        work.must_be_sane(answer)
        if answer.code and not _is_refused(answer):
            raise Bad(f"exit code {answer.code}:\n{answer.text}")
    return _whole(work, first, refused=any(IN_USE in one.text for one in answers))


def _neighbour(work: Work) -> list[str]:
    return work.rng.choice([["run"], ["run"], ["run"], ["status"], ["verify"]])


def _is_refused(answer: Answer) -> bool:
    """The lock is held, or verify and status saw an artifact that is being replaced."""
    return IN_USE in answer.text or "error: " in answer.text


def _whole(work: Work, task: Task, refused: bool) -> Outcome:
    answer = work.call(*task.plain_words(work))
    if answer.code:
        raise Bad(answer.text)
    work.must_be_whole()
    return Outcome(work.target, FOUND if refused else FIRM)


def another_user(work: Work) -> Outcome:
    """The run, or a part of it, belongs to another user, who lets others read it or not."""
    work.copy_runs()
    title = weighted(work.rng, work.scene.plain)
    place = work.rng.choice(
        [work.runs, folder_of(work.runs, title).parent, folder_of(work.runs, title)]
    )
    readable = work.rng.random() < 0.5
    words = work.rng.choice(["run", "run --from", "status", "verify", "report"])
    seen = "read" if readable else "seen"
    work.target = f"{words} {title}, {place.relative_to(work.folder)} can be {seen} only"
    if words in ("run", "run --from") and title.endswith("/report"):
        shutil.rmtree(folder_of(work.runs, title), ignore_errors=True)
    _give_away(place, readable) if place.exists() else None
    work.before = NO_POWERS if os.geteuid() == 0 else []
    name, recipe = title.split("/")[1], work.recipe(title)
    begin = ["--from", name, "--until", name] if words == "run --from" else []
    command = {"verify": ["verify"]}.get(words, [words.split()[0], str(recipe), *begin])
    answer = work.call(*command, "--runs", work.runs)
    if answer.code and "error: " not in answer.text.lower() and words != "verify":
        raise Bad(f"exit code {answer.code} without an error in words:\n{answer.text}")
    work.before = []
    _take_back(work.runs)
    again = work.call("run", recipe, "--runs", work.runs)
    if again.code:
        raise Bad(again.text)
    work.must_be_whole()
    return Outcome(work.target, FOUND if answer.code else FIRM, answer.text[-300:])


def _give_away(place: Path, readable: bool) -> None:
    """Files that others may read but not write, or not even read."""
    for one in [place, *place.rglob("*")]:
        is_folder = one.is_dir()
        if os.geteuid() == 0:
            os.chown(one, STRANGER, STRANGER)
        one.chmod((0o755 if is_folder else 0o644) if readable else (0o711 if is_folder else 0o600))
    if os.geteuid() != 0:
        place.chmod(0o555 if readable else 0o111)


def _take_back(place: Path) -> None:
    place.chmod(0o755)
    for one in place.rglob("*"):
        if os.geteuid() == 0:
            os.chown(one, 0, 0)
        one.chmod(0o755 if one.is_dir() else 0o644)


def hiding_umask(work: Work) -> Outcome:
    """What is made under umask 077 is for its owner only, and complete."""
    task = choose(work)
    task.prepare(work)
    work.target = f"{task} under umask 077"
    work.before = ["sh", "-c", 'umask 077; exec "$@"', "sh"]
    answer = work.call(*task.words(work))
    if answer.code:
        raise Bad(answer.text)
    made = folder_of(work.runs, task.title)
    shown = [one for one in made.rglob("*") if stat.S_IMODE(one.stat().st_mode) & 0o077]
    if shown:
        raise Bad(f"others can see {shown[:3]}")
    work.before = []
    return _whole(work, task, refused=False)
