"""Odd answers: a server of the policy and the judge answers as no server should.

The recipe ``served`` samples and judges by a server. Some requests, or all of them, are answered
oddly, in one of a hundred ways. The stages must end with the same responses, or with an error.
"""

from __future__ import annotations

from drill_model import SHARE, Model
from interruptions import Task, kill_task
from odd_answers import MORE, ODD
from scene import SERVED, write_launch
from trial import FIRM, FOUND, Bad, Outcome, Work

KINDS = {**ODD, **MORE}
STAGES = {"sample": ("sample", "select"), "grade": ("grade", "grade")}
"""The first and the last stage that a trial makes again."""


def odd_answers(work: Work) -> Outcome:
    """A share of the answers, or all of them, are odd in the same way."""
    name = work.rng.choice(sorted(KINDS))
    share = work.rng.choice([SHARE, SHARE, 1.0])
    first, last = STAGES[work.rng.choice(sorted(STAGES))]
    work.target = f"{SERVED}/{first}: {share:.0%} of the answers {name!r}"
    work.copy_runs()
    words = ("run", work.scene.recipe(SERVED), "--runs", work.runs)
    with Model(KINDS[name], work.rng, share) as url:
        launch = ("--launch", write_launch(work.folder, url))
        answer = work.call(*words, *launch, "--from", first, "--until", last)
    if answer.code == 0:
        work.must_be_whole()
        return Outcome(work.target, FIRM)
    if "error: " not in answer.text.lower():
        raise Bad(f"exit code {answer.code} without an error in words:\n{answer.text}")
    _taken_up(work, words)
    return Outcome(work.target, FOUND, answer.text[-400:])


def _taken_up(work: Work, words: tuple[object, ...]) -> None:
    """With a server that answers well, the run ends as the undisturbed one."""
    with Model() as url:
        answer = work.call(*map(str, words), "--launch", write_launch(work.folder, url))
    if answer.code:
        raise Bad(f"it cannot be taken up:\n{answer.text}")
    work.must_be_whole()


def kill(work: Work) -> Outcome:
    """SIGKILL while a server answers."""
    title = f"{SERVED}/{work.rng.choice(sorted(STAGES))}"
    with Model() as url:
        more = ("--launch", str(write_launch(work.folder, url)))
        return kill_task(work, Task(title, title, work.rng.choice(["missing", "from"]), more))
