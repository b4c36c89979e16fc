"""Derives a verdict from the state of all hosts: done, failed, disk full, or lost (restart).

    node01  heard 0.4 s ago   runs
    node02  heard 11 s ago    runs            -> lost: silent for 11 s

An error of one worker is often caused by the loss of another host, which is only silent at first.
So an exit code counts only when every other running host has reported after it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

_VANISHED_SECONDS = 3.0
"""A worker whose end is unknown is lost after this, unless its host's command exits before."""
_FULL = "No space left on device"
INPUT_ERROR = 2
"""Exit code for an invalid configuration (errors.InputError)."""


@dataclass
class WorkerEnd:
    """A worker that has ended.

    Args:
        rank: Rank of the worker, or ``?`` if unknown.
        process: Its process id on the host.
        code: Exit code; None if a signal killed the worker, or if its end is unknown.
        signal: The signal that killed the worker. If ``code`` is None too, its end is unknown.
        at: When the end was reported (monotonic seconds).
        since: When the host last reported before that.
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
    """True when the host's keeper has started the command."""
    code: int | None = None
    """Exit code of the host's command; negative for a signal."""
    code_at: float = 0.0
    """When the exit code was reported (monotonic seconds)."""
    code_since: float = 0.0
    """When the host last reported before ``code_at``."""
    closed: str | None = None
    """Why the connection ended too early; None if it did not."""
    workers: list[WorkerEnd] = field(default_factory=list)
    complaint: str | None = None
    """The last error line in the host's logs."""


@dataclass(frozen=True)
class Verdict:
    """The outcome of a start.

    Args:
        kind: ``done``, ``lost`` (restart), ``failed`` (do not restart) or ``full`` (a full disk).
        host: The host that caused the verdict; empty for ``done``.
        reason: The reason, as the start of a sentence.
        since: When training was last known to be healthy (monotonic seconds).
        noticed: When the verdict was made (monotonic seconds).
    """

    kind: str
    host: str = ""
    reason: str = ""
    since: float = 0.0
    noticed: float = 0.0


@dataclass(frozen=True)
class Limits:
    """Time limits from the launch file, in seconds."""

    notice: float
    connect: float
    stall: float


def judge(
    hosts: Sequence[HostState], now: float, step_at: float | None, limits: Limits
) -> Verdict | None:
    """Derive a verdict from the state of all hosts.

    Args:
        hosts: The state of each host.
        now: The current time (monotonic seconds).
        step_at: When this start completed its last optimizer step; None before its first step.
        limits: The time limits.

    Returns:
        The verdict; None while training continues, or while the state is still ambiguous.
    """
    verdict = _judge(hosts, now, step_at, limits)
    return None if verdict is None else replace(verdict, noticed=now)


def _judge(
    hosts: Sequence[HostState], now: float, step_at: float | None, limits: Limits
) -> Verdict | None:
    gone = _away(hosts, now, limits) or _killed(hosts, now)
    if gone is not None:
        return gone
    failures = [(failure, host) for host in hosts for failure in _failures(host)]
    if failures:
        (at, since, code), host = min(failures, key=lambda item: item[0])
        if any(other.heard <= at and other.code is None for other in hosts if other is not host):
            return None
        return _failure(host, code, step_at is not None, since)
    if all(host.code == 0 for host in hosts):
        return Verdict("done")
    if step_at is not None and now - step_at > limits.stall:
        reason = f"no new step for {now - step_at:.0f} s (stall_seconds)"
        return Verdict("lost", hosts[0].host, reason, since=step_at)
    return None


def _away(hosts: Sequence[HostState], now: float, limits: Limits) -> Verdict | None:
    for host in hosts:
        if host.code is not None:
            continue
        if host.closed is not None:
            reason = f"the connection to {host.host} ended: {host.closed}"
            return Verdict("lost", host.host, reason, since=host.heard)
        patience = limits.notice if host.up else limits.notice + limits.connect
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
    """Return the host's failures as (time reported, time of the report before, exit code)."""
    found = [(worker.at, worker.since, worker.code) for worker in host.workers if worker.code]
    return [*found, (host.code_at, host.code_since, host.code)] if host.code else found


def _failure(host: HostState, code: int, made_steps: bool, since: float) -> Verdict:
    reason = f"{host.host} ended with exit code {code}"
    if host.complaint:
        reason += f": {host.complaint}"
    if _FULL in (host.complaint or ""):
        return Verdict("full", host.host, reason, since=since)
    # Before the first step, or with an invalid configuration, a restart would fail in the same way.
    again = made_steps and code != INPUT_ERROR
    return Verdict("lost" if again else "failed", host.host, reason, since=since)
