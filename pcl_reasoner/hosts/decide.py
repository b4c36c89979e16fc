"""What the state of all hosts means: done, failed, stopped, or lost and to be started again.

    node01  heard 0.4 s ago   runs
    node02  heard 11 s ago    runs            -> lost: silent for 11 s

An error of one worker often follows from the loss of another host, which is silent at first. So
an exit code is judged only when every other host was heard from after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

_VANISHED_SECONDS = 3.0
"""A worker whose end nobody could tell is lost, unless its host's command ends well meanwhile."""
_FULL = "No space left on device"
INPUT_ERROR = 2
"""Exit code of a configuration that is wrong (errors.InputError)."""


@dataclass
class WorkerEnd:
    """A worker that has ended.

    Args:
        rank: Its rank, or ``?``.
        process: Its process there.
        code: Exit code.
        signal: The signal that killed it; with no code either, nobody could tell.
        at: When it was told (monotonic seconds).
        since: When its host was last heard from before.
    """

    rank: str
    process: int
    code: int | None
    signal: int | None
    at: float
    since: float


@dataclass
class HostState:
    """What is known of one host."""

    host: str
    heard: float
    """When it was last heard from (monotonic seconds)."""
    up: bool = False
    """Has its keeper started the command?"""
    code: int | None = None
    """Exit code of its command; negative for a signal."""
    code_at: float = 0.0
    code_since: float = 0.0
    """When it was last heard from before that."""
    closed: str | None = None
    """Why the connection ended before its time."""
    workers: list[WorkerEnd] = field(default_factory=list)
    complaint: str | None = None
    free: int | None = None
    """Bytes on its disk."""


@dataclass(frozen=True)
class Verdict:
    """What to do.

    Args:
        kind: ``done``, ``lost`` (start again), ``failed``, ``full`` (a disk).
        host: Whose doing.
        reason: A sentence.
        since: When all was last known to be well (monotonic seconds).
        noticed: When it was judged.
    """

    kind: str
    host: str = ""
    reason: str = ""
    since: float = 0.0
    noticed: float = 0.0


@dataclass(frozen=True)
class Limits:
    """The launch file's seconds."""

    notice: float
    connect: float
    stall: float


def judge(
    hosts: Sequence[HostState], now: float, step_at: float | None, limits: Limits
) -> Verdict | None:
    """Judge the state of all hosts.

    Args:
        hosts: All of them.
        now: Monotonic seconds.
        step_at: When this start made its last step; None where it has made none.
        limits: How long is too long.

    Returns:
        The verdict; None while training goes on, or while it cannot be told yet.
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
    """Of what failed on the host: when it was told, when all was well before, the exit code."""
    found = [(worker.at, worker.since, worker.code) for worker in host.workers if worker.code]
    return [*found, (host.code_at, host.code_since, host.code)] if host.code else found


def _failure(host: HostState, code: int, made_steps: bool, since: float) -> Verdict:
    reason = f"{host.host} ended with exit code {code}"
    if host.complaint:
        reason += f": {host.complaint}"
    if _FULL in (host.complaint or ""):
        return Verdict("full", host.host, reason, since=since)
    # Without a step, or with a wrong configuration, the same would happen again.
    again = made_steps and code != INPUT_ERROR
    return Verdict("lost" if again else "failed", host.host, reason, since=since)
