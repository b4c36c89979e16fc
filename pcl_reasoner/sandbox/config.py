"""Settings of the sandbox: what a candidate may use, and which Python runs it."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from pcl_reasoner.sandbox.limits import Limits


class SandboxConfig(BaseModel):
    """What candidates may use. It decides verdicts, so it is part of a stage's fingerprint."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    seconds: float = Field(6.0, gt=0)
    """Seconds per test. Time for which it waits for a processor does not count, so verdicts do not
    depend on the load. In C++ a problem's own limit comes before this; in Python the larger one
    counts. All tests of a response together have no further limit."""
    megabytes: int = Field(512, ge=64)
    """MiB of memory; a problem's own limit counts as for ``seconds``."""
    python: str | None = None
    """The interpreter for candidates, which may then import its packages; None for the system's
    (/usr/bin/python3) without packages. Verdicts depend on its version, which is not part of the
    fingerprint: it is not known where a run is planned. The artifact names it, and a resumed stage
    uses no results of another version."""
    weak: Literal["allow", "refuse"] = "allow"
    """Tests that look into the candidate's module must run in its interpreter, where a candidate
    could pretend that they have passed: ``allow`` counts these, ``refuse`` takes them as failed."""

    def limits(self) -> Limits:
        """The limits of a test."""
        return Limits(seconds=self.seconds, megabytes=self.megabytes)
