"""Decides from the state of all hosts whether training is done, failed, or must be restarted.

    node01  last report 0.4 s ago   running
    node02  last report 11 s ago    running        -> lost (restart): silent for 11 s

A lost host only stops reporting; workers of other hosts may exit with an error before that is
noticed. So an exit code is judged only when every other running host has sent a later report.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from pcl_reasoner.core.schema import Placement

_VANISHED_SECONDS = 3.0
"""A worker that ended in an unknown way counts as lost after this time, unless its host's command
(msrun) has ended meanwhile."""
_FULL = "No space left on device"
INPUT_ERROR = 2
"""Exit code for an invalid configuration (errors.InputError)."""


@dataclass
class WorkerEnd:
    """A worker that has ended; how it ended is unknown if ``code`` and ``signal`` are both None.

    Args:
        rank: Rank of the worker, or ``?`` if unknown.
        process: The worker's process id on the host.
        code: The worker's exit code; None if a signal killed it, or if the code is unknown.
        signal: The signal that killed the worker; None if no signal did.
        at: When the host reported the end (monotonic seconds).
        since: When the host's previous report arrived (monotonic seconds).
    """

    rank: str
    process: int
    code: int | None
    signal: int | None
    at: float
    since: float


@dataclass
class HostState:
    """The known state of one host."""

    host: str
    heard: float
    """When the host last reported (monotonic seconds)."""
    up: bool = False
    """True once the host's keeper has started the host's command (msrun)."""
    code: int | None = None
    """Exit code of the host's command; negative for a signal."""
    code_at: float = 0.0
    """When the exit code was reported (monotonic seconds)."""
    code_since: float = 0.0
    """When the report before the exit code arrived (monotonic seconds)."""
    closed: str | None = None
    """Why the connection ended before the keeper's last event (``ended``); None if it did not."""
    workers: list[WorkerEnd] = field(default_factory=list)
    complaint: str | None = None
    """The last error line in the host's logs."""


@dataclass(frozen=True)
class Verdict:
    """The result of one launch attempt of the training job, and the reason for it.

    Args:
        kind: ``done``, ``lost`` (restart), ``failed`` (do not restart) or ``full`` (a full disk).
        host: The host that caused the verdict; empty for ``done``.
        reason: The reason, without a full stop.
        since: When training was last known to be healthy (monotonic seconds).
    """

    kind: str
    host: str = ""
    reason: str = ""
    since: float = 0.0


def judge(
    hosts: Sequence[HostState], now: float, step_at: float | None, placement: Placement
) -> Verdict | None:
    """Derive a verdict from the state of all hosts.

    Args:
        hosts: The state of each host.
        now: The current time (monotonic seconds).
        step_at: When this launch attempt completed its last optimizer step; None before its first.
        placement: The launch file's settings, with the time limits.

    Returns:
        The verdict; None while training continues, or while the state is still ambiguous.
    """
    gone = _away(hosts, now, placement) or _killed(hosts, now)
    if gone is not None:
        return gone
    failures = [(failure, host) for host in hosts for failure in _failures(host)]
    if failures:
        return _first_failure(hosts, failures, step_at is not None)
    if all(host.code == 0 for host in hosts):
        return Verdict("done")
    return _stalled(hosts, now, step_at, placement)


def _away(hosts: Sequence[HostState], now: float, placement: Placement) -> Verdict | None:
    for host in hosts:
        if host.code is not None:
            continue
        if host.closed is not None:
            reason = f"the connection to {host.host} ended: {host.closed}"
            return Verdict("lost", host.host, reason, since=host.heard)
        patience = placement.notice_seconds + (0 if host.up else placement.ssh.connect_seconds)
        if now - host.heard > patience:
            reason = f"{host.host} was silent for {now - host.heard:.0f} s"
            return Verdict("lost", host.host, reason, since=host.heard)
    return None


def _killed(hosts: Sequence[HostState], now: float) -> Verdict | None:
    for host in hosts:
        for worker in host.workers:
            who = f"the worker of rank {worker.rank} (process {worker.process}) on {host.host}"
            if worker.signal is not None:
                reason = f"{who} was killed by signal {worker.signal}"
                return Verdict("lost", host.host, reason, since=worker.since)
            unknown = worker.code is None and host.code is None
            if unknown and now - worker.at > _VANISHED_SECONDS:
                return Verdict("lost", host.host, f"{who} is gone", since=worker.since)
        if host.code is not None and host.code < 0:
            reason = f"the command on {host.host} was killed by signal {-host.code}"
            return Verdict("lost", host.host, reason, since=host.code_since)
    return None


def _failures(host: HostState) -> list[tuple[float, float, int]]:
    """Return the host's failures: (time of the report, time of the previous report, exit code)."""
    found = [(worker.at, worker.since, worker.code) for worker in host.workers if worker.code]
    return [*found, (host.code_at, host.code_since, host.code)] if host.code else found


def _first_failure(
    hosts: Sequence[HostState],
    failures: Sequence[tuple[tuple[float, float, int], HostState]],
    made_steps: bool,
) -> Verdict | None:
    """Judge the first failure; None until every other running host has reported after it."""
    (at, since, code), host = min(failures, key=lambda item: item[0])
    if any(other.heard <= at and other.code is None for other in hosts if other is not host):
        return None
    return _failure(host, code, made_steps, since)


def _failure(host: HostState, code: int, made_steps: bool, since: float) -> Verdict:
    reason = f"{host.host} ended with exit code {code}"
    if host.complaint:
        reason += f": {host.complaint}"
    if _FULL in (host.complaint or ""):
        return Verdict("full", host.host, reason, since=since)
    # Before the first step, or with an invalid configuration, a restart would fail in the same way.
    again = made_steps and code != INPUT_ERROR
    return Verdict("lost" if again else "failed", host.host, reason, since=since)


def _stalled(
    hosts: Sequence[HostState], now: float, step_at: float | None, placement: Placement
) -> Verdict | None:
    if step_at is None or now - step_at <= placement.stall_seconds:
        return None
    reason = f"no new step for {now - step_at:.0f} s (stall_seconds)"
    return Verdict("lost", hosts[0].host, reason, since=step_at)
