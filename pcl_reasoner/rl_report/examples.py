"""Chooses responses of on-policy training for the page: those with the best and worst advantage.

A sample example::

    {"stage": "am/rl_1", "round": 3, "kind": "code", "problem_id": "20ae731970bb0069",
     "problem": "Write f. …", "ground_truth": "", "sample_index": 3, "verdict": "incorrect",
     "reward": 0.0, "score": None, "advantage": -1.29, "n_tokens": 40,
     "response": "<think>…", "tail": "", "left_out": 0,
     "why": {"passed": 0, "total": 5, "test": 1, "reason": "wrong value", …}}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcl_reasoner.core.kinds import KINDS
from pcl_reasoner.page_parts.records import read_rows
from pcl_reasoner.page_parts.texts import cut, why
from pcl_reasoner.rl_report.reading import RESPONSES

if TYPE_CHECKING:
    import pyarrow as pa

_KEY = ("stage", "round", "problem_id", "sample_index")
_COLUMNS = ("response", "n_tokens", "verdict", "reward", "score", "detail", "advantage")


@dataclass(frozen=True)
class RlFolders:
    """The folders of a finished stage ``rl``.

    Args:
        key: ``recipe/stage``.
        rl: Its artifact.
        problems: The folder with its problems in clean.parquet; None if it is not known.
    """

    key: str
    rl: Path
    problems: Path | None


def read_rl_examples(stages: Sequence[RlFolders], count: int, seed: int) -> list[dict[str, Any]]:
    """Return responses of each kind, of different problems; half have the largest advantages.

    The others have the smallest. Equal advantages are in random order, so that the responses are
    of different rounds. Responses without an advantage, because they failed or were left out of
    their group, are not shown.

    Args:
        stages: The stages ``rl``.
        count: Responses of each kind, over all stages.
        seed: Seed of the random order.

    Returns:
        The responses as above: kind by kind, from the largest advantage to the smallest.
    """
    if not stages or not count:
        return []
    chosen = [row for kind in KINDS for row in _choose(_of_kind(stages, kind), count, seed)]
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for stage in stages:
        found |= _read(stage, [row for row in chosen if row["stage"] == stage.key])
    return [found[_key(row)] for row in chosen]


def _of_kind(stages: Sequence[RlFolders], kind: str) -> pa.Table:
    """Return the keys and advantages of all compared responses to problems of a kind."""
    import pyarrow as pa
    from pyarrow import dataset

    columns = ["problem_id", "sample_index", "round", "advantage"]
    has_advantage = dataset.field("advantage").is_valid()
    tables = []
    for stage in stages:
        responses = dataset.dataset(stage.rl / RESPONSES, format="parquet")
        wanted = (dataset.field("kind") == kind) & has_advantage
        table = responses.to_table(columns=columns, filter=wanted)
        tables.append(table.append_column("stage", pa.array([stage.key] * len(table), pa.string())))
    return pa.concat_tables(tables)


def _choose(table: pa.Table, count: int, seed: int) -> list[dict[str, Any]]:
    """Return rows of different problems: half from each end of the order by advantage."""
    import numpy as np

    advantage = table["advantage"].to_numpy()
    order = np.random.default_rng(seed).permutation(len(table))
    order = order[np.argsort(-advantage[order], kind="stable")]
    seen: set[str] = set()
    best = _of_new_problems(table, order, seen, (count + 1) // 2)
    worst = _of_new_problems(table, order[::-1], seen, count // 2)
    return [*best, *reversed(worst)]


def _of_new_problems(
    table: pa.Table, places: Iterable[Any], seen: set[str], count: int
) -> list[dict[str, Any]]:
    """Return the first rows whose problem was not seen, and add their problems to ``seen``."""
    names, found = table["problem_id"], list[dict[str, Any]]()
    for place in places:
        if len(found) == count:
            break
        if (name := names[int(place)].as_py()) not in seen:
            seen.add(name)
            found += table.slice(int(place), 1).to_pylist()
    return found


def _read(
    stage: RlFolders, chosen: Sequence[Mapping[str, Any]]
) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Return key -> what the page shows of a response, for the chosen ones of a stage."""
    from pyarrow import dataset

    ids = sorted({row["problem_id"] for row in chosen})
    rounds = sorted({row["round"] for row in chosen})
    if not ids:
        return {}
    columns = ["problem", "ground_truth", "kind", "checks"]
    problems = read_rows(stage.problems, "clean.parquet", ["problem_id", *columns], ids)
    problem_of = {row["problem_id"]: row for row in problems}
    wanted = dataset.field("problem_id").isin(ids) & dataset.field("round").isin(rounds)
    names = [*_KEY[1:], "kind", *_COLUMNS]
    responses = dataset.dataset(stage.rl / RESPONSES, format="parquet")
    keys = {_key(row) for row in chosen}
    found = {}
    for row in responses.to_table(columns=names, filter=wanted).to_pylist():
        key = _key({**row, "stage": stage.key})
        if key in keys:
            found[key] = {"stage": stage.key, **_shown(row, problem_of.get(row["problem_id"], {}))}
    return found


def _shown(row: Mapping[str, Any], problem: Mapping[str, Any]) -> dict[str, Any]:
    text = {name: str(problem.get(name) or "") for name in ("problem", "ground_truth")}
    reasons = why(row["detail"], problem.get("checks"))
    plain = {name: value for name, value in row.items() if name != "detail"}
    return {**plain, **text, "why": reasons, **cut(row["response"])}


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in _KEY)
