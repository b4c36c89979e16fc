"""Counts the problems and responses of every stage by the kind of their problem.

A sample row of the table on the page::

    {"key": "am/check_tests", "name": "check_tests", "kept": {"math": 2400, "code": 385},
     "lost": {"code": 5}, "dropped": {"bad_tests": 5}}

Tables of problems have the column ``kind``; tables of responses get it by their problem_id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcl_reasoner.core.kinds import KINDS
from pcl_reasoner.page_parts.records import StageRecord

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.dataset import Dataset

PROBLEMS = ("rows", "problems.parquet", "clean.parquet")
"""Tables of problems in a stage's folder; ``rows`` is a folder of Parquet files."""
RESPONSES = ("responses", "responses.parquet", "verdicts.parquet")
"""Tables of responses."""
UNKNOWN = "unknown"
"""The kind of responses whose problem is in no table of problems."""
VERDICTS = ("verdict", "graded_by", "reward", "score")


def read_kinds(folders: Iterable[Path]) -> pa.Table | None:
    """Read the kind of every problem; None if all are of mathematics.

    Args:
        folders: The folders of finished stages.

    Returns:
        A table with problem_id and kind, one row per problem.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    tables = [one for folder in folders if (one := _open(folder, PROBLEMS, "kind")) is not None]
    if {kind for one in tables for kind in _count(one, "kind")} <= {"math"}:
        return None
    found = pa.concat_tables([one.to_table(columns=["problem_id", "kind"]) for one in tables])
    found = found.set_column(1, "kind", pc.fill_null(found["kind"], "math"))
    named = found.group_by("problem_id", use_threads=False).aggregate([("kind", "min")])
    return named.rename_columns(["problem_id", "kind"])


def files_by_kind(folder: Path, kinds: pa.Table | None) -> dict[str, Any]:
    """Return ``kinds``: kind -> number of a stage's problems or responses; graded ones in detail.

    Args:
        folder: A finished stage's folder.
        kinds: The result of ``read_kinds``.

    Returns:
        ``kinds``, and ``graded_by_kind`` for a stage with verdicts; empty if ``kinds`` is None or
        the stage has no such table.
    """
    if kinds is None:
        return {}
    problems = _open(folder, PROBLEMS)
    if problems is not None:
        if "kind" in problems.schema.names:
            return {"kinds": _ordered(_count(problems, "kind"))}
        return {"kinds": {"math": problems.count_rows()}}
    responses = _open(folder, RESPONSES)
    if responses is None:
        return {}
    columns = [name for name in ("problem_id", *VERDICTS) if name in responses.schema.names]
    joined = _with_kind(responses.to_table(columns=columns), kinds)
    found: dict[str, Any] = {"kinds": _ordered(Counter(joined["kind"].to_pylist()))}
    if {"verdict", "graded_by"} <= set(columns):
        found["graded_by_kind"] = _graded(joined)
    return found


def _open(folder: Path, names: Sequence[str], column: str = "problem_id") -> Dataset | None:
    """Open the first of the tables that a stage has; None without one, or without the column."""
    from pyarrow import dataset

    for path in (folder / name for name in names if (folder / name).exists()):
        table = dataset.dataset(path, format="parquet")
        return table if {"problem_id", column} <= set(table.schema.names) else None
    return None


def _with_kind(table: pa.Table, kinds: pa.Table) -> pa.Table:
    """Add the column kind; with threads, the order of rows and so the last digits would vary."""
    import pyarrow.compute as pc

    joined = table.join(kinds, "problem_id", join_type="left outer", use_threads=False)
    place = joined.schema.get_field_index("kind")
    return joined.set_column(place, "kind", pc.fill_null(joined["kind"], UNKNOWN))


def _count(table: Dataset, column: str) -> Counter[str]:
    """Count a column's values; null is math, as in rows that were written without kinds."""
    found = Counter[str]()
    for one in table.to_table(columns=[column])[column].value_counts().to_pylist():
        found[one["values"] or "math"] += one["counts"]
    return found


def _ordered(counts: Mapping[str, int]) -> dict[str, int]:
    return {kind: counts[kind] for kind in (*KINDS, UNKNOWN) if counts.get(kind)}


def _graded(joined: pa.Table) -> dict[str, Any]:
    """Return kind -> responses, verdicts, graders, and the means of rewards and scores."""
    by_kind = joined.group_by("kind", use_threads=False)
    means = by_kind.aggregate([("reward", "mean"), ("score", "mean")])
    found: dict[str, Any] = {
        one["kind"]: {"mean_reward": one["reward_mean"], "mean_score": one["score_mean"]}
        for one in means.to_pylist()
    }
    for column, name in (("verdict", "verdicts"), ("graded_by", "graders")):
        pairs = joined.group_by(["kind", column], use_threads=False)
        for one in pairs.aggregate([([], "count_all")]).to_pylist():
            found[one["kind"]].setdefault(name, {})[one[column]] = one["count_all"]
    for one in found.values():
        one["responses"] = sum(one["verdicts"].values())
        for name in ("verdicts", "graders"):
            one[name] = dict(sorted(one[name].items()))
    return {kind: found[kind] for kind in (*KINDS, UNKNOWN) if kind in found}


def kind_rows(records: Sequence[StageRecord]) -> list[dict[str, Any]]:
    """Return a row per stage whose problems or responses have kinds, in the order of the stages."""
    counted = {one.key: one.files["kinds"] for one in records if one.files.get("kinds")}
    return [
        {
            "key": record.key,
            "recipe": record.recipe,
            "name": record.name,
            "unit": str(record.counts.get("unit", "")),
            "kept": counted[record.key],
            "lost": lost(record, counted),
            "dropped": dict(record.counts.get("dropped") or {}),
        }
        for record in records
        if record.key in counted
    ]


def lost(record: StageRecord, counted: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """Return kind -> number that a stage dropped; empty if this cannot be found out.

    What a stage read has the kinds of its inputs; ``sample`` reads every problem n times. A stage
    that reads a source has no such input: it lost what it dropped, if it has a single kind.
    ``rl`` reads the problems of every round again.

    Args:
        record: The stage.
        counted: recipe/stage -> kind -> number kept.
    """
    if record.type == "rl":
        return {}
    kept, read = counted[record.key], record.counts.get("read") or 0
    inputs = Counter[str]()
    for source in _sources(record, counted):
        inputs.update(counted[source])
    times = read // inputs.total() if inputs else 0
    if inputs and times * inputs.total() == read:
        found = {kind: times * number - kept.get(kind, 0) for kind, number in inputs.items()}
    else:
        found = {kind: read - number for kind, number in kept.items()} if len(kept) == 1 else {}
    return _ordered(found) if all(number >= 0 for number in found.values()) else {}


def _sources(record: StageRecord, counted: Mapping[str, Any]) -> list[str]:
    """Return the stages whose problems, or else responses, a stage filters or answers."""
    origins = (record.manifest or {}).get("origins") or {}
    roles = ["rows", "problems"]
    if record.counts.get("unit") == "responses":
        roles.insert(0, "responses")
    for role in roles:
        named = [
            source
            for name, source in origins.items()
            if name.partition(".")[0] == role and source in counted
        ]
        if named:
            return named
    return []


def mixes(records: Sequence[StageRecord]) -> list[dict[str, Any]]:
    """Return what every ``mix`` took: kind -> number taken, and the number that was asked for."""
    return [
        {
            "key": record.key,
            "taken": _ordered((record.counts.get("info") or {}).get("kinds") or {}),
            "asked": dict(record.config.get("take") or {}),
        }
        for record in records
        if record.type == "mix" and record.manifest
    ]
