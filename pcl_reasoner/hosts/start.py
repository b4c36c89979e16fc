"""One start of a job: starts all hosts at once, monitors them until a verdict, and stops them."""

import json
import queue
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass

from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.stage import Progress
from pcl_reasoner.hosts.decide import Limits, Verdict, judge
from pcl_reasoner.hosts.gather import gather
from pcl_reasoner.hosts.job import Job, keeper_command, mark_of, task_of
from pcl_reasoner.hosts.keeper import Task
from pcl_reasoner.hosts.link import Event, Link
from pcl_reasoner.hosts.view import View
from pcl_reasoner.supervise.connection import ask, reason_in

_POLL_SECONDS = 0.2
_STOP_SECONDS = 2.0
"""Added to ``notice_seconds``: after that, a host without connection has stopped everything."""
_START_SECONDS = 20
"""Added to ``connect_seconds``: a keeper that only kills what is left has answered after that."""


@dataclass(frozen=True)
class Outcome:
    """How one start ended.

    Args:
        verdict: Done, or the reason why not.
        step: The last optimizer step completed.
        away: Host -> reason, for hosts that cannot be reached after the start has ended.
    """

    verdict: Verdict
    step: int
    away: dict[str, str]


def one_start(job: Job, placement: Placement, number: int, progress: Progress) -> Outcome:
    """Start all hosts, monitor them until there is a verdict, and stop everything.

    Args:
        job: The training job.
        placement: The settings of this start; spare hosts may have replaced lost hosts.
        number: Number of the start, from 1.
        progress: Receives the progress.
    """
    events: queue.Queue[Event] = queue.Queue()
    view = View(job.metrics, job.folder, job.steps)
    links: list[Link] = []
    try:
        for rank, host in enumerate(placement.hosts):
            command = keeper_command(job, placement, host)
            links.append(Link(rank, host, command, task_of(job, placement, rank, number), events))
        verdict = _watch(links, events, view, placement, progress)
    finally:
        away = _stop(links, events, job, placement)
        gather(job.logs, job.folder, placement, number)
    view.look(time.monotonic())
    return Outcome(verdict, view.step, away)


def _watch(
    links: list[Link],
    events: queue.Queue[Event],
    view: View,
    placement: Placement,
    progress: Progress,
) -> Verdict:
    limits = Limits(
        placement.notice_seconds, placement.ssh.connect_seconds, placement.stall_seconds
    )
    while True:
        _take(links, events, _POLL_SECONDS)
        states = [link.state for link in links]
        now = time.monotonic()
        view.look(now)
        verdict = judge(states, now, view.step_at, limits)
        progress.update(view.step, view.steps, "steps", view.note(states, now))
        if verdict is not None:
            return verdict


def _take(links: list[Link], events: queue.Queue[Event], seconds: float) -> None:
    """Handle all events in the queue, after waiting up to ``seconds`` for the first."""
    try:
        event = events.get(timeout=seconds)
        while True:
            links[event.rank].take(event)
            event = events.get_nowait()
    except queue.Empty:
        return


def _stop(
    links: list[Link], events: queue.Queue[Event], job: Job, placement: Placement
) -> dict[str, str]:
    """Stop everything on all hosts and wait until no process of the run is left.

    A host without connection stops everything itself, ``notice_seconds`` after the last heartbeat.

    Returns:
        Host -> reason, for hosts that cannot be reached.
    """
    for link in links:
        link.stop()
    until = time.monotonic() + placement.notice_seconds + _STOP_SECONDS
    while time.monotonic() < until and not all(
        link.ended or link.state.closed is not None for link in links
    ):
        _take(links, events, _POLL_SECONDS)
    for link in links:
        link.close()
    unsure = [link.state.host for link in links if not link.ended]
    with ThreadPoolExecutor(len(links) or 1) as pool:
        answers = list(pool.map(lambda host: why_away(job, placement, host), unsure))
    away = {host: why for host, why in zip(unsure, answers, strict=True) if why is not None}
    if away:
        time.sleep(max(0.0, until - time.monotonic()))
    return away


def why_away(job: Job, placement: Placement, host: str) -> str | None:
    """Kill what is left of the run on a host, and return why the host cannot be reached.

    None: the host can be reached, and no process of the run is left on it.
    """
    task = json.dumps(asdict(Task(run=mark_of(job, host)))) + "\n"
    seconds = placement.ssh.connect_seconds + _START_SECONDS
    output, errors = ask(keeper_command(job, placement, host), task, seconds)
    return None if '"ended"' in output else reason_in(errors)
