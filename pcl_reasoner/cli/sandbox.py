"""The sandbox on this machine: doctor's row."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pcl_reasoner.hardware_check.doctor import Check

NAME = "sandbox for programs"
WANTED = "user namespaces, with bubblewrap or without"


def doctor_row() -> Check:
    """Run a few attacks in the sandbox that a run would use here."""
    from pcl_reasoner.core.errors import StageError
    from pcl_reasoner.core.schema import SandboxPlacement
    from pcl_reasoner.hardware_check.doctor import Check
    from pcl_reasoner.sandbox.config import SandboxConfig
    from pcl_reasoner.sandbox.opening import choose
    from pcl_reasoner.sandbox.self_check import check_sandbox

    placement = SandboxPlacement()
    try:
        choice = choose(SandboxConfig(), placement)
        result = check_sandbox(choice, placement)
    except StageError as error:
        return Check(NAME, "not found", WANTED, True, False, str(error))
    held = result.attacks - len(result.open)
    found = (
        f"{choice.engine}, {held} of {result.attacks} attacks held, memory limited by "
        f"{choice.memory}, Python {choice.version}"
    )
    advice = ""
    if not result.runs:
        advice = "A program that does nothing forbidden failed. Set sandbox.python to a Python."
    elif result.open:
        advice = (
            f"Not held: {', '.join(result.open)}. Run no programs of responses here: name services "
            "by placement.sandbox, or another machine."
        )
    return Check(NAME, found, WANTED, result.holds, False, advice)
