"""Shows the programs that ran in sandboxes: of ``check_tests``, ``grade`` and ``evaluate``.

A sample row::

    {"key": "am/grade", "what": "programs of responses", "engine": "bubblewrap",
     "python": "3.11.2 on x86_64", "tested": 314, "passed": 2, "weak_tests": 0,
     "failures": {"wrong": 276, "exception": 36}}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from pcl_reasoner.page_parts import charts, drawing
from pcl_reasoner.page_parts.records import StageRecord
from pcl_reasoner.page_parts.texts import REASONS

UNSAFE = "rlimits"
"""The engine that keeps nothing from a program."""
_PARTS = (
    ("all tests passed", "trained"),
    ("wrong value", "wrong"),
    ("error", "error"),
    ("limit reached", "limit"),
)
_SETTINGS = ("seconds", "megabytes")


def program_rows(records: Sequence[StageRecord]) -> list[dict[str, Any]]:
    """Return a row per stage that tested programs, in the order of the stages."""
    return [row for record in records if (row := _row(record))]


def _row(record: StageRecord) -> dict[str, Any] | None:
    info = record.counts.get("info") or {}
    scored = record.files.get("scores") or {}
    graded = record.files.get("grading") or {}
    settings, figures, what = {
        "check_tests": (info.get("sandbox"), info.get("solutions"), "solutions of the source"),
        "grade": (graded.get("sandbox"), info.get("programs"), "programs of responses"),
        "evaluate": (scored.get("sandbox"), scored.get("sandbox"), "programs of responses"),
    }.get(record.type, (None, None, ""))
    if not settings or not figures:
        return None
    failures = figures.get("failures") or {}
    reasons = [*REASONS, *sorted(set(failures) - set(REASONS))]
    return {
        "key": record.key,
        "what": what,
        "engine": str(settings.get("engine", "")),
        "python": str(settings.get("python_version", "")),
        "limits": {name: settings[name] for name in _SETTINGS if name in settings},
        "tested": figures.get("tested", 0),
        "passed": figures.get("passed_all", 0),
        "weak_tests": figures.get("weak_tests", 0),
        "failures": {one: failures[one] for one in reasons if one in failures},
        "without_solution": info.get("without_solution"),
        "dropped": (record.counts.get("dropped") or {}).get("bad_tests", 0),
    }


def warnings_about(records: Sequence[StageRecord]) -> list[str]:
    """Return the reasons not to trust tests: an unsafe engine, and tests that can be cheated.

    ``grade`` itself warns about such tests.
    """
    found = []
    types = {record.key: record.type for record in records}
    for row in program_rows(records):
        if row["engine"] == UNSAFE:
            found.append(
                f"{row['key']}: programs ran with the engine {UNSAFE}, which is unsafe: a program "
                "could read and change this user's files, use the network, and pretend that its "
                "tests pass."
            )
        if row["weak_tests"] and types[row["key"]] != "grade":
            found.append(
                f"{row['key']}: {row['weak_tests']} tests passed in the candidate's interpreter, "
                "where a program could pretend that they pass. sandbox.weak: refuse fails them."
            )
    return found


def program_chart(rows: Sequence[Mapping[str, Any]]) -> Markup | None:
    """Draw one bar per stage: the shares of programs by outcome; None if none was tested."""
    bars = []
    for row in rows:
        if not row["tested"]:
            continue
        counts = dict.fromkeys(("wrong", "error", "limit"), 0)
        for reason, number in row["failures"].items():
            counts[REASONS.get(reason, ("", "error"))[1]] += number
        parts = [100 * number / row["tested"] for number in (row["passed"], *counts.values())]
        bars.append(charts.Bar(row["key"], parts, f"{drawing.group(row['tested'])} programs"))
    return charts.bar_chart("Programs by outcome", _PARTS, bars, "%") if bars else None
