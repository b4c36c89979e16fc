"""What the state of the hosts means, second by second."""

from __future__ import annotations

from typing import Any

import pytest

from pcl_reasoner.core.schema import Placement, Ssh
from pcl_reasoner.hosts.decide import HostState, Verdict, WorkerEnd, judge

LIMITS = Placement(notice_seconds=10, ssh=Ssh(connect_seconds=5), stall_seconds=60)
NOW = 100.0


def host(name: str = "a", **changes: Any) -> HostState:
    return HostState(name, **{"heard": 99.5, "up": True} | changes)


def worker(code: int | None = None, signal: int | None = None, at: float = 99.0) -> WorkerEnd:
    return WorkerEnd("3", 4250, code, signal, at=at, since=98.5)


def judged(*hosts: HostState, step_at: float | None = 99.0) -> Verdict | None:
    return judge(hosts, NOW, step_at, LIMITS)


def verdict(*hosts: HostState, step_at: float | None = 99.0) -> Verdict:
    found = judged(*hosts, step_at=step_at)
    assert found is not None
    return found


def test_hosts_that_run_are_left_alone() -> None:
    assert judged(host(), host("b")) is None
    assert judged(host(), host("b"), step_at=None) is None
    assert judged(host(code=0), host("b")) is None


def test_all_that_ended_well_are_done() -> None:
    assert verdict(host(code=0), host("b", code=0, closed="it ended")).kind == "done"


def test_a_silent_host_is_lost_and_one_that_is_starting_has_more_time() -> None:
    found = verdict(host(), host("b", heard=89.9))
    assert (found.kind, found.host, found.since) == ("lost", "b", 89.9)
    assert found.reason == "b was silent for 10 s"
    assert judged(host(), host("b", heard=90.1)) is None
    assert judged(host(), host("b", heard=85.1, up=False)) is None
    assert verdict(host(), host("b", heard=84.9, up=False)).host == "b"


def test_a_connection_that_ends_early_is_a_lost_host() -> None:
    found = verdict(host(), host("b", closed="no route"))
    assert (found.kind, found.reason) == ("lost", "the connection to b ended: no route")


def test_a_killed_worker_is_lost_whatever_the_others_say_of_it() -> None:
    collateral = host("b", code=1, code_at=98.0)
    found = verdict(collateral, host(workers=[worker(signal=9)]))
    assert (found.kind, found.host, found.since) == ("lost", "a", 98.5)
    assert "rank 3 (process 4250) on a was killed by signal 9" in found.reason


def test_a_worker_whose_end_nobody_saw_is_lost_unless_its_host_ends_well() -> None:
    assert judged(host(workers=[worker(at=98.0)])) is None
    assert verdict(host(workers=[worker(at=96.9)])).reason.endswith("on a is gone")
    assert verdict(host(workers=[worker(at=90.0)], code=0)).kind == "done"


def test_workers_that_end_well_are_no_loss() -> None:
    assert judged(host(workers=[worker(code=0, at=10.0)])) is None


@pytest.mark.parametrize(
    ("code", "step_at", "kind"), [(1, 99.0, "lost"), (1, None, "failed"), (2, 99.0, "failed")]
)
def test_an_exit_code_is_tried_again_only_after_steps_and_never_a_wrong_configuration(
    code: int, step_at: float | None, kind: str
) -> None:
    found = verdict(
        host(code=code, code_at=99.0, complaint="ValueError: x"), host("b"), step_at=step_at
    )
    assert (found.kind, found.host) == (kind, "a")
    assert found.reason == f"a ended with exit code {code}: ValueError: x"


def test_an_exit_code_waits_until_the_others_were_heard_from() -> None:
    """A worker fails because another host is gone, which is silent at first."""
    failed = host(code=1, code_at=99.0)
    assert judged(failed, host("b", heard=98.9)) is None
    assert verdict(failed, host("b", heard=99.1)).host == "a"
    assert verdict(failed, host("b", heard=89.0)).host == "b"


def test_the_first_of_several_failures_is_the_cause() -> None:
    first = host("b", workers=[worker(code=1, at=97.0)])
    assert verdict(host(code=1, code_at=98.0), first).host == "b"


def test_a_full_disk_is_said() -> None:
    complaint = "OSError: [Errno 28] No space left on device"
    assert verdict(host(code=1, code_at=99.0, complaint=complaint), host("b")).kind == "full"


def test_no_new_step_for_too_long_is_a_loss_after_the_first_step_alone() -> None:
    assert verdict(host(), step_at=39.0).reason == "no new step for 61 s (stall_seconds)"
    assert judged(host(), step_at=41.0) is None
    assert judged(host(), step_at=None) is None
