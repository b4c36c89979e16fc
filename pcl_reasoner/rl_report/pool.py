"""Shows the problems of on-policy training by kind: removed by a filter, added by a mix, asked.

A sample row, of a stage ``solved``::

    {"key": "am/solved", "recipe": "am", "name": "solved", "type": "solved",
     "dropped": {"solved_always": 40},
     "kinds": {"math": {"kept": 610, "removed": 30, "added": 0, "asked": None}, …}}

The rows follow the problems: from the first ``pass_rate``, or without one from the problems of the
first stage ``rl``, to the last stage ``rl``. A row is compared with the row before. The row of a
stage ``rl`` has the problems that it trains on and the number that it asked; it is compared with
the stage ``rl`` before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from pcl_reasoner.core.kinds import KINDS
from pcl_reasoner.page_parts import charts, drawing
from pcl_reasoner.page_parts.records import StageRecord
from pcl_reasoner.rl_report.digest import trained

_FILTERS = ("pass_rate", "solved")

Kinds = dict[str, int]
"""Kind -> number of problems."""


def pool_rows(records: Sequence[StageRecord]) -> list[dict[str, Any]]:
    """Return a row per stage through which the problems of on-policy training went."""
    stages = trained(records)
    if not stages:
        return []
    by_key = {one.key: one for one in records if one.manifest}
    origins = {one.key: _source(one, by_key) for one in stages}
    path = _path(origins[stages[-1].key], by_key)
    path = path[_begin(path, [one.key for one in origins.values() if one]) :]
    rows: list[dict[str, Any]] = []
    before, pool = _before(path[0]) if path else {}, Kinds()
    for one in path:
        kept = _kept(one)
        rows.append(_row(one, before, kept))
        before = kept
        for rl in (rl for rl in stages if origins[rl.key] is one):
            chosen = rl.config.get("kinds") or KINDS
            asked = {kind: number for kind, number in kept.items() if kind in chosen}
            rows.append(_row(rl, pool or asked, asked))
            pool = asked
    return rows


def _source(record: StageRecord, by_key: Mapping[str, StageRecord]) -> StageRecord | None:
    """Return the stage that a stage has its problems from; of several, one after a filter.

    So the stages whose problems a mix adds are not followed.
    """
    origins = (record.manifest or {}).get("origins") or {}
    roles = {role: key for role, key in origins.items() if role.partition(".")[0] == "problems"}
    found = [by_key[key] for key in roles.values() if key in by_key]
    if len(found) < 2:
        return next(iter(found), None)
    filtered = [one for one in found if any(x.type in _FILTERS for x in _path(one, by_key))]
    return [*filtered, *found][0]


def _path(record: StageRecord | None, by_key: Mapping[str, StageRecord]) -> list[StageRecord]:
    """Return the stages through which problems went, up to and including this stage."""
    return [] if record is None else [*_path(_source(record, by_key), by_key), record]


def _begin(path: Sequence[StageRecord], asked: Sequence[str]) -> int:
    """Return the place of the first ``pass_rate``, or of the first problems that were asked."""
    found = (one.type == "pass_rate" or one.key in asked for one in path)
    return next((place for place, begins in enumerate(found) if begins), 0)


def _before(record: StageRecord) -> Kinds:
    """Return what a stage read: the problems with a pass rate, and those that were not filtered."""
    info = record.counts.get("info") or {}
    if record.type != "pass_rate" or "rates" not in info:
        return _kept(record)
    rated = {
        kind: one["zero"] + sum(one["counts"]) + one["one"] for kind, one in info["rates"].items()
    }
    passed = info.get("not_filtered") or {}
    return {kind: rated.get(kind, 0) + passed.get(kind, 0) for kind in {**rated, **passed}}


def _kept(record: StageRecord) -> Kinds:
    """Return the problems that a stage kept; all are of math if the run has no other kind."""
    kinds = (record.counts.get("info") or {}).get("kinds")
    if record.type == "solved" and kinds:
        return {kind: one["kept"] for kind, one in kinds.items()}
    if record.type == "mix" and kinds:
        return dict(kinds)
    return dict(record.files.get("kinds") or {"math": record.counts.get("kept") or 0})


def _row(record: StageRecord, before: Kinds, kept: Kinds) -> dict[str, Any]:
    asked = (record.files.get("rl") or {}).get("asked")
    return {
        **{name: getattr(record, name) for name in ("key", "recipe", "name", "type")},
        "dropped": {} if asked else dict(record.counts.get("dropped") or {}),
        "kinds": {
            kind: {
                "kept": kept.get(kind, 0),
                "removed": max(0, before.get(kind, 0) - kept.get(kind, 0)),
                "added": max(0, kept.get(kind, 0) - before.get(kind, 0)),
                "asked": None if asked is None else asked.get(kind, 0),
            }
            for kind in KINDS
            if kept.get(kind) or before.get(kind)
        },
    }


def pool_chart(rows: Sequence[Mapping[str, Any]]) -> Markup | None:
    """Draw a bar per stage: its problems by kind; None without rows."""
    kinds = [kind for kind in KINDS if any(kind in row["kinds"] for row in rows)]
    bars = []
    for row in rows:
        counts = [row["kinds"].get(kind, {}).get("kept", 0) for kind in kinds]
        bars.append(charts.Bar(row["name"], counts, f"{drawing.group(sum(counts))} problems"))
    if not any(sum(bar.parts) for bar in bars):
        return None
    parts = [(kind, f"hue kind-{kind}") for kind in kinds]
    return charts.bar_chart("Problems by stage and kind", parts, bars, "")
