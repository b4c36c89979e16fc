"""Trains on several hosts to the last step, with a restart after each lost worker or host.

    logs/train-1a2b3c4d/restarts.jsonl
    {"time": "2026-11-21T20:01:07+0000", "host": "node02", "reason": "node02 was silent for 10 s",
     "step": 412, "resumed_from": 400, "seconds_to_notice": 10.2, "seconds_until_started": 31.0,
     "hosts": ["node01", "node03"]}

Starts never overlap: before each one, all processes of the run have ended on all hosts.
"""

import time
from dataclasses import asdict, dataclass

from pcl_reasoner.core.artifact import AppendLog
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.stage import Progress
from pcl_reasoner.hosts.decide import Verdict
from pcl_reasoner.hosts.gather import gather, next_start, tail_of
from pcl_reasoner.hosts.job import Job
from pcl_reasoner.hosts.start import one_start, why_away

RESTARTS = "restarts.jsonl"
_AGAIN_SECONDS = 3.0
"""Seconds between two attempts to reach a host."""


@dataclass(frozen=True)
class Restart:
    """One loss and the restart after it: a line of restarts.jsonl."""

    time: str
    host: str
    reason: str
    step: int
    """The last optimizer step completed before the loss."""
    resumed_from: int
    seconds_to_notice: float
    """From the last time at which training was known to be healthy, to the verdict."""
    seconds_until_started: float
    """From the verdict to the next start."""
    hosts: list[str]
    """The hosts of the next start."""

    @property
    def words(self) -> str:
        """The restart as a warning."""
        return (
            f"started again after step {self.step}, from step {self.resumed_from}: {self.reason}, "
            f"noticed after {self.seconds_to_notice:.1f} s"
        )


def run_job(job: Job, progress: Progress) -> list[Restart]:
    """Train to the last step on all hosts.

    Args:
        job: The training job and its hosts.
        progress: Receives the progress.

    Returns:
        The restarts, one per loss.

    Raises:
        StageError: A check of the hosts failed, a stop rule ended training, a disk is full,
            training failed in a way that a restart would repeat, it was restarted too often, or a
            lost host cannot be replaced.
    """
    _check(job)
    restarts: list[Restart] = []
    placement = job.placement
    first = next_start(job.logs)
    if first > 1:  # logs that a killed launcher did not move
        gather(job.logs, job.folder, placement, first - 1)
    resumed = job.prepare()
    while resumed is not None:
        number = first + len(restarts)
        ended = one_start(job, placement, number, progress)
        verdict = ended.verdict
        if verdict.kind == "done":
            break
        last = tail_of(job.logs, placement.hosts.index(verdict.host), number)
        _refuse_to_go_on(job, verdict, len(restarts) + 1, last)
        for host, why in ended.away.items():
            placement = _replace(job, placement, host, why, progress)
        resumed = job.prepare()
        goes_on = job.steps if resumed is None else resumed
        restarts.append(_restart(verdict, ended.step, goes_on, placement.hosts))
        _record(job, restarts[-1])
    return restarts


def _restart(verdict: Verdict, step: int, resumed_from: int, hosts: list[str]) -> Restart:
    since_then = time.monotonic() - verdict.noticed
    return Restart(
        time=time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(time.time() - since_then)),
        host=verdict.host,
        reason=verdict.reason,
        step=step,
        resumed_from=resumed_from,
        seconds_to_notice=round(verdict.noticed - verdict.since, 2),
        seconds_until_started=round(since_then, 2),
        hosts=hosts,
    )


def _check(job: Job) -> None:
    wrong = job.check(job.placement)
    if wrong:
        lines = "\n".join(f"  {sentence}" for sentence in wrong)
        many = "checks" if len(wrong) > 1 else "check"
        raise StageError(f"{len(wrong)} {many} before the start failed:\n{lines}")


def _refuse_to_go_on(job: Job, verdict: Verdict, starts: int, last: str) -> None:
    """Raise the error that ends the run, if another start would not help or is not allowed.

    Args:
        job: The training job.
        verdict: How the last start ended.
        starts: Number of starts so far.
        last: The last lines of the log of the verdict's host.

    Raises:
        StageError: A stop rule ended training, a disk is full, a restart would fail in the same
            way, or ``placement.restarts`` is used up.
    """
    if job.stopped is not None and job.stopped.exists():
        raise StageError(job.stopped.read_text(encoding="utf-8").strip())
    logs = f"The logs of all hosts are in {job.logs}. {last}".strip()
    if verdict.kind == "full":
        raise StageError(f"{verdict.reason}. Free space there and run again. {logs}")
    if verdict.kind == "failed":
        raise StageError(f"{verdict.reason}. The same would happen again. {logs}")
    limit = job.placement.restarts
    if starts > limit:
        raise StageError(
            f"{verdict.reason}. It was started {starts} times, placement.restarts is {limit}. "
            f"The same command goes on from the last checkpoint. {logs}"
        )


def _record(job: Job, restart: Restart) -> None:
    job.logs.mkdir(parents=True, exist_ok=True)
    log = AppendLog(job.logs / RESTARTS)
    log.append([asdict(restart)])
    log.close()


def _replace(job: Job, placement: Placement, lost: str, why: str, progress: Progress) -> Placement:
    """Replace a host that cannot be reached by a spare host, or wait for it.

    Returns:
        The placement of the next start.

    Raises:
        StageError: The host cannot be reached for ``cluster_time_out`` seconds, and no spare host
            passes the checks.
    """
    until = time.monotonic() + placement.cluster_time_out
    away: str | None = why
    while away is not None:
        for spare in placement.spare_hosts:
            alone = placement.model_copy(update={"hosts": [spare]})
            if why_away(job, alone, spare) is None and not job.check(alone):
                return _with_spare(placement, lost, spare)
        if time.monotonic() > until:
            raise StageError(
                f"{lost} stays away ({away}), and no spare host is fit. Name another host in the "
                "launch file; the same command goes on from the last checkpoint."
            )
        progress.update(0, None, "steps", f"waiting for {lost}: {away}")
        time.sleep(_AGAIN_SECONDS)
        away = why_away(job, placement, lost)
    return placement


def _with_spare(placement: Placement, lost: str, spare: str) -> Placement:
    return placement.model_copy(
        update={
            "hosts": [spare if host == lost else host for host in placement.hosts],
            "spare_hosts": [host for host in placement.spare_hosts if host != spare],
        }
    )
