"""The stage solved, by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError
from revise_helpers import PROBLEM_COLUMNS, row, write_problem_rows

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.stage import Counts, StageContext
from pcl_reasoner.rl.solved import SolvedConfig, Visits, drop_reason, read_visits, solved
from pcl_reasoner.stages import STAGES

VISIT_COLUMNS = pa.schema(
    [
        ("problem_id", pa.string()),
        ("kind", pa.string()),
        ("round", pa.int32()),
        ("n", pa.int32()),
        ("reward_mean", pa.float32()),
        ("all_correct", pa.bool_()),
        ("overlong", pa.int32()),
    ]
)
Visit = tuple[int, bool, int]
"""(answered responses, all correct, over-long responses) of a visit."""
SOLVED, FAILED, LONG, UNANSWERED = (8, True, 0), (8, False, 0), (8, True, 1), (0, True, 0)

VISITED: dict[str, list[Visit]] = {
    "once": [SOLVED],
    "twice": [SOLVED, SOLVED],
    "later": [FAILED, SOLVED],
    "earlier": [SOLVED, FAILED],
    "never": [FAILED],
    "long": [SOLVED, LONG],
    "lost": [UNANSWERED],  # all requests failed
    "partly": [UNANSWERED, (1, True, 0)],
    "code": [SOLVED],
    "bug": [FAILED],
    "chat": [SOLVED, SOLVED],
    "gone": [SOLVED],
}
MATH = [row(name, "1", kind=None) for name in list(VISITED)[:8]] + [row("unseen", "1")]
CODE = [row("code", "", kind="code", checks="{}", pass_rate=0.5), row("bug", "", kind="code")]
CHAT = [row("chat", "", kind="chat"), row("hello", "", kind="chat")]


def write_visits(folder: Path, visits: Mapping[str, Sequence[Visit]]) -> Path:
    rows = [
        {"problem_id": name, "kind": "math", "round": 2 * index, "n": n, "reward_mean": 1.0}
        | {"all_correct": correct, "overlong": overlong}
        for name, given in visits.items()
        for index, (n, correct, overlong) in enumerate(given)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist(rows, VISIT_COLUMNS)
    # In the order of rounds, as training makes them, not of problems.
    pq.write_table(table.sort_by("round"), folder / "visits.parquet")
    return folder


def run(
    path: Path, problems: list[dict[str, Any]], **settings: Any
) -> tuple[Counts, list[dict[str, Any]], StageContext]:
    rounds = path / "rl"
    if not rounds.exists():
        write_visits(rounds, VISITED)
    inputs = {"problems": write_problem_rows(path / "p", problems), "rounds": rounds}
    output = path / "solved"
    output.mkdir(exist_ok=True)
    where = StageContext("solved", path / "q.jsonl")
    counts = solved(SolvedConfig(**settings), inputs, output, where)
    table = pq.read_table(output / "clean.parquet")
    assert table.schema.equals(PROBLEM_COLUMNS)
    assert counts.read == counts.kept + sum(counts.dropped.values())
    return counts, table.to_pylist(), where


def names(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return [one["problem_id"] for one in rows]


def test_problems_solved_in_every_visit_are_removed(tmp_path: Path) -> None:
    counts, kept, made = run(tmp_path, [*MATH, *CODE, *CHAT])
    assert names(kept) == [
        *("later", "earlier", "never", "long", "lost", "unseen", "bug", "chat", "hello"),
    ]
    assert kept[6] == CODE[1] | {"pass_rate": None}  # the columns and their values are the input's
    assert (counts.unit, counts.read, counts.kept) == ("problems", 13, 9)
    assert counts.dropped == {"solved_always": 4}
    assert counts.info == {
        "kinds": {
            "chat": {"before": 2, "removed": 0, "kept": 2, "not_seen": 1},
            "code": {"before": 2, "removed": 1, "kept": 1, "not_seen": 0},
            "math": {"before": 9, "removed": 3, "kept": 6, "not_seen": 2},
        },
        "unanswered_visits": 2,
        "problems_only_in_visits": 1,
    }
    assert not made.warnings


def test_problems_with_few_visits_are_kept(tmp_path: Path) -> None:
    counts, kept, _ = run(tmp_path, [*MATH, *CODE], min_visits=2)
    # A visit without an answer does not count: `partly` has one visit.
    assert {"once", "partly", "code"} < set(names(kept))
    assert (counts.dropped, "twice" in names(kept)) == ({"solved_always": 1}, False)


def test_problems_not_seen_are_dropped_on_request(tmp_path: Path) -> None:
    counts, kept, _ = run(tmp_path, [*MATH, *CODE, *CHAT], not_seen="drop")
    assert names(kept) == ["later", "earlier", "never", "long", "bug", "chat", "hello"]
    assert counts.dropped == {"not_seen": 2, "solved_always": 4}
    math = {"before": 9, "removed": 5, "kept": 4, "not_seen": 2}
    assert counts.info["kinds"]["math"] == math


def test_only_the_named_kinds_are_filtered(tmp_path: Path) -> None:
    counts, kept, _ = run(tmp_path, [*MATH, *CODE, *CHAT], kinds=["chat"], not_seen="drop")
    assert names(kept) == names([*MATH, *CODE])
    assert counts.dropped == {"not_seen": 1, "solved_always": 1}


def test_the_reason_of_a_problem() -> None:
    counted = [Visits(), Visits(1, 0), Visits(1, 1), Visits(2, 1), Visits(2, 2), Visits(3, 3)]
    reasons = [drop_reason(one, SolvedConfig(min_visits=2)) for one in counted]
    assert reasons == [*[None] * 4, "solved_always", "solved_always"]
    assert drop_reason(Visits(), SolvedConfig(not_seen="drop")) == "not_seen"


def test_rounds_of_other_problems_are_an_error(tmp_path: Path) -> None:
    others = [row("unseen", "1"), row("hello", "", kind="chat")]
    message = "its visits are of 11 problems, and none of them is among the 2 input problems"
    with pytest.raises(StageError, match=f"visits.parquet: {message} .*'math': {{'before': 1"):
        run(tmp_path / "a", others)
    write_visits(tmp_path / "b" / "rl", {})
    with pytest.raises(StageError, match="its visits are of 0 problems"):
        run(tmp_path / "b", MATH)


def test_nothing_left_is_an_error_with_the_funnel(tmp_path: Path) -> None:
    gone = [row("once", "1"), row("unseen", "1")]
    found = "'not_seen': 1, 'solved_always': 1.*'math': {'before': 2, 'removed': 2"
    with pytest.raises(StageError, match=f"no problem is left of 2 .dropped: .{found}"):
        run(tmp_path, gone, not_seen="drop")
    assert not (tmp_path / "solved" / "clean.parquet").exists()


def test_a_filter_without_visits_or_without_problems_left_is_a_warning(tmp_path: Path) -> None:
    _, _, made = run(tmp_path / "a", [row("unseen", "1"), *CHAT])
    assert made.warnings == ["none of the 1 problems to filter was visited."]
    _, kept, made = run(tmp_path / "b", [row("once", "1"), *CHAT])
    assert names(kept) == ["chat", "hello"]
    assert made.warnings == ["every problem to filter was dropped: {'solved_always': 1}."]


def test_malformed_visits_are_errors(tmp_path: Path) -> None:
    file = write_visits(tmp_path, {"a": [SOLVED, FAILED]}) / "visits.parquet"
    table = pq.read_table(file)
    assert read_visits(file) == ({"a": Visits(2, 1)}, 0)
    pq.write_table(table.slice(0, 1), file)
    pq.write_table(pa.concat_tables([table, table.slice(1)]), file)
    with pytest.raises(StageError, match="two visits of problem a in round 2, expected one"):
        read_visits(file)
    empty = pa.array([True, None])
    pq.write_table(table.set_column(5, "all_correct", empty), file)
    with pytest.raises(StageError, match="problem a in round 2 has no all_correct"):
        read_visits(file)
    pq.write_table(table.drop(["overlong"]), file)
    with pytest.raises(StageError, match="no column overlong; got problem_id"):
        read_visits(file)
    file.unlink()
    with pytest.raises(StageError, match="visits.parquet"):
        read_visits(file)


def test_its_settings_are_checked_and_its_stage_is_in_the_table() -> None:
    for wrong in ({"kinds": ["maths"]}, {"kinds": []}, {"min_visits": 0}, {"not_seen": "remove"}):
        with pytest.raises(ValidationError):
            SolvedConfig.model_validate(wrong)
    assert STAGES["solved"].config_class() is SolvedConfig
    assert STAGES["solved"].function() is solved
    assert set(STAGES["solved"].inputs) == {"problems", "rounds"}
