"""One launch attempt: starts the job on all hosts, monitors it until a verdict, and stops it."""

import json
import queue
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass

from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.stage import Progress
from pcl_reasoner.hosts.decide import Verdict, judge
from pcl_reasoner.hosts.gather import gather
from pcl_reasoner.hosts.job import Job, keeper_command, mark_of, task_of
from pcl_reasoner.hosts.keeper import Task
from pcl_reasoner.hosts.link import Event, Link
from pcl_reasoner.hosts.view import View
from pcl_reasoner.supervise.connection import ask, reason_in

_POLL_SECONDS = 0.2
_STOP_SECONDS = 2.0
"""After ``notice_seconds`` plus this, a host without connection has ended its command."""
_START_SECONDS = 20
"""A keeper that only kills leftover processes has ``connect_seconds`` plus this to answer."""


@dataclass(frozen=True)
class Outcome:
    """How one launch attempt ended.

    Args:
        verdict: Whether training is done, and if not, the reason.
        noticed: When the verdict was made (monotonic seconds).
        step: The last optimizer step completed.
        away: Host -> reason, for hosts that cannot be reached at the end.
    """

    verdict: Verdict
    noticed: float
    step: int
    away: dict[str, str]


def one_start(job: Job, placement: Placement, number: int, progress: Progress) -> Outcome:
    """Start the job on all hosts, monitor it until a verdict, stop it, and return the outcome.

    Args:
        job: The training job.
        placement: The settings of this attempt; spare hosts may have replaced lost hosts.
        number: Number of the attempt, from 1.
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
        noticed = time.monotonic()
    finally:
        away = _stop(links, events, job, placement)
        gather(job.logs, job.folder, placement, number)
    view.look(time.monotonic())
    return Outcome(verdict, noticed, view.step, away)


def _watch(
    links: list[Link],
    events: queue.Queue[Event],
    view: View,
    placement: Placement,
    progress: Progress,
) -> Verdict:
    while True:
        _take(links, events, _POLL_SECONDS)
        states = [link.state for link in links]
        now = time.monotonic()
        view.look(now)
        verdict = judge(states, now, view.step_at, placement)
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
    away = _all_away(job, placement, unsure)
    if away:
        time.sleep(max(0.0, until - time.monotonic()))
    return away


def _all_away(job: Job, placement: Placement, hosts: list[str]) -> dict[str, str]:
    """Try to reach all hosts in parallel; return host -> reason for each that does not answer."""
    with ThreadPoolExecutor(len(hosts) or 1) as pool:
        answers = list(pool.map(lambda host: why_away(job, placement, host), hosts))
    return {host: why for host, why in zip(hosts, answers, strict=True) if why is not None}


def why_away(job: Job, placement: Placement, host: str) -> str | None:
    """Kill the run's leftover processes on a host, and return why the host cannot be reached.

    None means that the host was reached and that no process of the run is left there.
    """
    task = json.dumps(asdict(Task(run=mark_of(job, host)))) + "\n"
    seconds = placement.ssh.connect_seconds + _START_SECONDS
    output, errors = ask(keeper_command(job, placement, host), task, seconds)
    return None if '"ended"' in output else reason_in(errors)
