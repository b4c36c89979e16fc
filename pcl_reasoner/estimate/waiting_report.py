"""Formats what a run waits for beside its steps, as rows and lines for a terminal.

besides the steps   seconds   times   hours   parts
first start             256       1    0.07   compile 240 s, read the weights 16 s
a save                 12.5      11    0.04   copy to the host 0.2 s, write 8.2 s, seal 4.1 s
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pcl_reasoner.estimate.layouts import SECONDS_PER_HOUR
from pcl_reasoner.estimate.saves import COMPILE_SECONDS, SEAL_RATE, Run, Waiting, Waits

HEADINGS = ("besides the steps", "seconds", "times", "hours", "parts")
NUMBERS = HEADINGS[1:4]
_GB = 1e9


def rows(waited: Waiting) -> list[tuple[str, ...]]:
    """One row for the first start, for all saves, and for an interruption."""
    return [
        _row("first start", waited.start, 1),
        _row("a save", waited.save, waited.saves),
        _row("an interruption", waited.resume, None),
    ]


def _row(what: str, parts: Mapping[str, float], times: int | None) -> tuple[str, ...]:
    seconds = sum(parts.values())
    told = ", ".join(f"{name} {_seconds(part)} s" for name, part in parts.items())
    hours = seconds * (times or 1) / SECONDS_PER_HOUR
    return what, _seconds(seconds), f"{times:,}" if times else "each", f"{hours:.2f}", told


def _seconds(seconds: float) -> str:
    return f"{seconds:,.0f}" if seconds >= 100 else f"{seconds:.1f}"


def lines(run: Run, waited: Waiting, waits: Waits) -> Iterator[str]:
    """Yield whether saves overlap with training, and what is assumed."""
    if run.is_async:
        yield (
            f"async_save: MindFormers writes for {_seconds(waited.hidden)} s beside the following "
            "steps; training waits for the copy and the seal, and for the save before if that is "
            "not written yet"
        )
    else:
        save = sum(waited.save.values())
        rest = save - waited.save["write"]
        yield (
            "saves do not overlap with training (async_save: false). MindFormers' async_save would "
            f"write beside the following steps: {_seconds(rest)} s per save in place of "
            f"{_seconds(save)} s, for a second copy of the slices in the host's memory"
        )
    known = "measured" if "file_rate" in waits.measured else "ASSUMED"
    yield (
        f"  {known}: {waits.file_rate / _GB:.3g} GB/s per host to the shared folder; ASSUMED: "
        f"{SEAL_RATE / _GB:g} GB/s to hash a rank's slices, and {COMPILE_SECONDS:.0f} s for "
        "MindSpore's front end (its back end, which needs CANN, is not included)"
    )
