"""doctor's attacks: held where there are namespaces, and found out where there are none."""

from __future__ import annotations

import pytest
from sandbox_helpers import PYTHON, need

from pcl_reasoner.core.schema import SandboxPlacement
from pcl_reasoner.sandbox.cgroups import find_groups
from pcl_reasoner.sandbox.engines import Engine
from pcl_reasoner.sandbox.opening import Choice
from pcl_reasoner.sandbox.self_check import ATTACKS, SelfCheck, check_sandbox


@pytest.mark.parametrize("engine", ["bubblewrap", "unshare"])
def test_every_attack_is_held(engine: Engine) -> None:
    need(engine)
    choice = Choice(engine, PYTHON, "", find_groups())
    found = check_sandbox(choice, SandboxPlacement(engine=engine))
    assert found == SelfCheck(runs=True, attacks=len(ATTACKS) + 1, open=())
    assert found.holds


def test_attacks_that_find_a_way_are_named() -> None:
    # They do no harm: what they reach was made for them.
    placement = SandboxPlacement(engine="rlimits", unsafe=True)
    found = check_sandbox(Choice("rlimits", PYTHON, ""), placement)
    assert found.runs and not found.holds
    assert {"a connection to this machine", "the password file", "a file outside"} < {*found.open}
    assert "ending before the tests" not in found.open


def test_a_sandbox_in_which_nothing_runs_does_not_hold() -> None:
    assert not SelfCheck(runs=False, attacks=9, open=()).holds
