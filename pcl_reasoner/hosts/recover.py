"""Trains on several hosts to the last step, with a restart after each lost worker or host.

    logs/train-1a2b3c4d/restarts.jsonl
    {"time": "2026-11-21T20:01:07+0000", "host": "node02", "reason": "node02 was silent for 10 s",
     "step": 412, "resumed_from": 400, "seconds_to_notice": 10.2, "seconds_until_started": 31.0,
     "hosts": ["node01", "node03"]}

Launch attempts never overlap: each begins when no process of an earlier attempt is left on a host.
"""

import time
from dataclasses import asdict, dataclass

from pcl_reasoner.core.append_log import AppendLog
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.stage import Progress
from pcl_reasoner.hosts.decide import Verdict
from pcl_reasoner.hosts.gather import gather, next_start, tail_of
from pcl_reasoner.hosts.job import Job
from pcl_reasoner.hosts.start import Outcome, one_start, why_away

RESTARTS = "restarts.jsonl"
_AGAIN_SECONDS = 3.0
"""Seconds between two attempts to reach a host."""


@dataclass(frozen=True)
class Restart:
    """How a worker or host was lost, and the restart after that: a line of restarts.jsonl."""

    time: str
    host: str
    reason: str
    step: int
    """The last optimizer step completed before the worker or host was lost."""
    resumed_from: int
    seconds_to_notice: float
    """Seconds from the last sign of healthy training to the verdict."""
    seconds_until_started: float
    """Seconds from the verdict until everything is ready for the next launch."""
    hosts: list[str]
    """The hosts of the next launch."""

    @property
    def words(self) -> str:
        """The text of a warning about this restart."""
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
        One Restart for each time that a worker or host was lost.

    Raises:
        StageError: A check of the hosts failed, a stop rule ended training, a disk is full,
            training failed in a way that a restart would repeat, training was restarted too often,
            or a lost host cannot be replaced.
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
        _refuse_to_restart(job, verdict, len(restarts) + 1, last)
        for host, why in ended.away.items():
            placement = _replace(job, placement, host, why, progress)
        resumed = job.prepare()
        resumed_from = job.steps if resumed is None else resumed
        restarts.append(_recorded(job, ended, resumed_from, placement.hosts))
    return restarts


def _recorded(job: Job, ended: Outcome, resumed_from: int, hosts: list[str]) -> Restart:
    """Return the restart that follows a launch; also append it to restarts.jsonl."""
    verdict, since_then = ended.verdict, time.monotonic() - ended.noticed
    restart = Restart(
        time=time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(time.time() - since_then)),
        host=verdict.host,
        reason=verdict.reason,
        step=ended.step,
        resumed_from=resumed_from,
        seconds_to_notice=round(ended.noticed - verdict.since, 2),
        seconds_until_started=round(since_then, 2),
        hosts=hosts,
    )
    job.logs.mkdir(parents=True, exist_ok=True)
    log = AppendLog(job.logs / RESTARTS)
    log.append([asdict(restart)])
    log.close()
    return restart


def _check(job: Job) -> None:
    wrong = job.check(job.placement)
    if wrong:
        lines = "\n".join(f"  {sentence}" for sentence in wrong)
        many = "checks" if len(wrong) > 1 else "check"
        raise StageError(f"{len(wrong)} {many} before the start failed:\n{lines}")


def _refuse_to_restart(job: Job, verdict: Verdict, starts: int, last: str) -> None:
    """Raise the error that ends the run, if another launch would not help or is not allowed.

    Args:
        job: The training job.
        verdict: How the last launch ended.
        starts: Number of launches by this command so far.
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
    if starts > job.placement.restarts:
        raise StageError(
            f"{verdict.reason}. It was started {starts} times, placement.restarts is "
            f"{job.placement.restarts}. The same command resumes from the last checkpoint. {logs}"
        )


def _replace(job: Job, placement: Placement, lost: str, why: str, progress: Progress) -> Placement:
    """Use a spare host in place of a lost host, or wait until the lost host can be reached.

    Returns:
        The placement of the next launch.

    Raises:
        StageError: The host cannot be reached for ``cluster_time_out`` seconds, and no spare host
            passes the checks.
    """
    until = time.monotonic() + placement.cluster_time_out
    away: str | None = why
    while away is not None:
        with_spare = _with_spare(job, placement, lost)
        if with_spare is not None:
            return with_spare
        if time.monotonic() > until:
            raise StageError(
                f"{lost} stays away ({away}), and no spare host is fit. Name another host in the "
                "launch file; the same command resumes from the last checkpoint."
            )
        progress.update(0, None, "steps", f"waiting for {lost}: {away}")
        time.sleep(_AGAIN_SECONDS)
        away = why_away(job, placement, lost)
    return placement


def _with_spare(job: Job, placement: Placement, lost: str) -> Placement | None:
    """Return the placement with the first spare host that passes the checks; None if none does."""
    for spare in placement.spare_hosts:
        alone = placement.model_copy(update={"hosts": [spare]})
        if why_away(job, alone, spare) is None and not job.check(alone):
            hosts = [spare if host == lost else host for host in placement.hosts]
            others = [host for host in placement.spare_hosts if host != spare]
            return placement.model_copy(update={"hosts": hosts, "spare_hosts": others})
    return None
