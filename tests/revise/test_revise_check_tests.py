"""Code problems whose own solution fails their tests are dropped, counted and shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sandbox_helpers import need

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.stage import Counts, StageContext
from pcl_reasoner.revise.check_tests import CheckTestsConfig, check_tests


def code(reference: str | None, *pairs: tuple[str, str]) -> dict[str, Any]:
    cases = [{"input": given, "output": expected} for given, expected in pairs]
    found: dict[str, Any] = {"tests": {"format": "stdin", "cases": cases}}
    return found if reference is None else {**found, "reference": reference}


DOUBLE = "print(2 * int(input()))"
PROBLEMS: dict[str, tuple[str, Any]] = {
    "good": ("code", code(DOUBLE, ("3", "6"), ("0", "0"))),
    "wrong": ("code", code(DOUBLE, ("3", "6"), ("4", "9"), ("5", "10"))),
    "crash": ("code", code("1 / 0", ("3", "6"))),
    "none": ("code", code(None, ("3", "6"))),
    "math": ("math", ""),
}
BROKEN: dict[str, tuple[str, Any]] = {
    "cut": ("code", "{"),
    "list": ("code", "[]"),
    "form": ("code", {"tests": {"format": "stdin"}, "reference": DOUBLE}),
}


def run(tmp_path: Path, names: list[str], **keys: Any) -> tuple[Counts, list[str], list[Any]]:
    need("unshare")
    source, output = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    output.mkdir()
    rows: list[dict[str, Any]] = [
        {
            "problem_id": name,
            "problem": f"text of {name}",
            "ground_truth": "",
            "kind": kind,
            "checks": json.dumps(checks) if isinstance(checks, dict) else checks,
        }
        for name in names
        for kind, checks in [(PROBLEMS | BROKEN)[name]]
    ]
    pq.write_table(pa.Table.from_pylist(rows), source / "problems.parquet")
    context = StageContext("check_tests", output / "quarantined.jsonl", Placement())
    counts = check_tests(CheckTestsConfig(**keys), {"problems": source}, output, context)
    kept = pq.read_table(output / "clean.parquet")
    assert kept.schema.names == list(rows[0])
    bad = [json.loads(line) for line in (output / "bad_tests.jsonl").open()]
    return counts, kept["problem_id"].to_pylist(), bad


def test_a_solution_that_fails_drops_its_problem(tmp_path: Path) -> None:
    counts, kept, bad = run(tmp_path, list(PROBLEMS))
    assert kept == ["good", "none", "math"]
    assert (counts.read, counts.kept, counts.dropped) == (5, 3, {"bad_tests": 2})
    assert counts.info["without_solution"] == 1
    assert counts.info["solutions"]["failures"] == {"exception": 1, "wrong": 1}
    crash, wrong = bad
    assert (crash["problem_id"], crash["reason"]) == ("crash", "exception")
    assert wrong == {
        "problem_id": "wrong",
        "problem": "text of wrong",
        "case": 1,
        "reason": "wrong",
        "text": "8\n",
        "passed": 1,
        "total": 3,
    }
    assert not (tmp_path / "out" / "tests.partial.jsonl").exists()


def test_problems_without_a_solution_can_be_dropped(tmp_path: Path) -> None:
    counts, kept, _ = run(tmp_path, ["good", "none", "math"], without_solution="drop")
    assert kept == ["good", "math"]
    assert counts.dropped == {"no_solution": 1}


def test_no_problem_left_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StageError, match="no problem is left .*bad_tests': 2.*sandbox.python"):
        run(tmp_path, ["wrong", "crash"])


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["math", "good", "good"], "problem good occurs twice"),
        (["cut"], "problem cut: its checks are no JSON object: {. Convert"),
        (["list"], r"problem list: its checks are no JSON object: \[\]. Convert"),
        (["form"], "problem form has the kind code and has unreadable tests"),
    ],
)
def test_problems_that_are_not_what_convert_writes(
    tmp_path: Path, names: list[str], message: str
) -> None:
    with pytest.raises(StageError, match=message):
        run(tmp_path, names)
