from __future__ import annotations

import json

import pyarrow as pa
import pytest
from pyarrow import parquet
from rl_artifact import response, round_row, write_rl

from pcl_reasoner.page_parts.texts import HEAD, TAIL
from pcl_reasoner.rl_report.examples import RlFolders, read_rl_examples

CASES = [{"args": [1], "out": 2}, {"args": [3], "out": 6}]
WRONG = {"passed": 1, "total": 2, "weak": 0, "case": 1, "reason": "wrong", "text": "7"}
ROUND = [round_row(0, {"math": (1, 1.0)})]


def _problems(folder, names):
    folder.mkdir()
    checks = json.dumps({"tests": {"cases": CASES}})
    rows = [
        {"problem_id": name, "problem": f"Solve {name}.", "ground_truth": "8", "kind": "math",
         "checks": checks if name[0] == "c" else ""}
        for name in names
    ]  # fmt: skip
    parquet.write_table(pa.Table.from_pylist(rows), folder / "clean.parquet")


def _artifact(folder, rows):
    folder.mkdir()
    write_rl(folder, ROUND, rows, [])
    return folder


@pytest.fixture
def stages(tmp_path):
    """Advantages 2, 1, 0, −1, −2 of five problems of math; the second stage has code, too."""
    _problems(tmp_path / "problems", ["m1", "m2", "c1"])
    first = [response((f"m{i}", 0), i, 3.0 - i) for i in (1, 2, 3, 4, 5)]
    # Failed, or masked: without an advantage. The others are of problems with a better response.
    first += [response(("m9", 0), 0, None), response(("m1", 1), 1, 1.5)]
    second = [
        response(("c1", 0), 7, -0.5, detail=json.dumps(WRONG), response="x" * 5000),
        response(("c1", 0), 8, 0.25),
    ]
    problems = tmp_path / "problems"
    return [
        RlFolders("am/rl_1", _artifact(tmp_path / "rl_1", first), problems),
        RlFolders("am/rl_2", _artifact(tmp_path / "rl_2", second), problems),
    ]


def test_half_are_the_best_and_half_the_worst_of_different_problems(stages):
    found = read_rl_examples(stages, 4, seed=0)
    math = [one for one in found if one["kind"] == "math"]
    assert [(one["problem_id"], one["advantage"]) for one in math] == [
        ("m1", 2.0),
        ("m2", 1.0),
        ("m4", -1.0),
        ("m5", -2.0),
    ]
    assert [(one["stage"], one["round"]) for one in math[:2]] == [("am/rl_1", 1), ("am/rl_1", 2)]
    assert (math[0]["problem"], math[0]["ground_truth"]) == ("Solve m1.", "8")
    # Its problem is not in the table of problems.
    assert math[2]["problem"] == ""
    assert "m9" not in {one["problem_id"] for one in read_rl_examples(stages, 20, seed=0)}


def test_a_program_is_shown_with_the_test_that_failed_first(stages):
    # One of each kind, and it is the best: round 8 of c1, not round 7.
    (_, best) = read_rl_examples(stages, 1, seed=0)
    assert (best["kind"], best["round"], best["why"]) == ("code", 8, {})
    (stage,) = [one for one in stages if one.key == "am/rl_2"]
    rows = [response(("c1", 0), 7, -0.5, detail=json.dumps(WRONG), response="x" * 5000)]
    write = stage.rl.parent / "again"
    (worst,) = read_rl_examples([RlFolders("am/rl", _artifact(write, rows), stage.problems)], 2, 0)
    assert (worst["why"]["test"], worst["why"]["got"]) == (2, "7")
    assert worst["why"]["reason"] == "wrong value"
    assert json.loads(worst["why"]["case"]) == CASES[1]
    assert (len(worst["response"]), worst["left_out"]) == (HEAD, 5000 - HEAD - TAIL)


def test_among_equal_advantages_the_seed_decides(tmp_path):
    rows = [response((f"m{i}", 0), i, 1.0) for i in range(40)]
    stage = RlFolders("am/rl", _artifact(tmp_path / "rl", rows), None)
    drawn = [[one["round"] for one in read_rl_examples([stage], 6, seed)] for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert all(len(set(rounds)) == 6 for rounds in drawn)


def test_nothing_is_drawn_without_a_stage_or_a_number(stages):
    assert read_rl_examples([], 6, 0) == [] == read_rl_examples(stages, 0, 0)
