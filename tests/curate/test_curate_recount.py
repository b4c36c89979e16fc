"""A released set counted by hand, and beside the published figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from curate_helpers import Folder, Rows, write

from pcl_reasoner.core.errors import InputError
from pcl_reasoner.curate.recount import PUBLISHED, recount

ROWS: Rows = [
    {"problem": "a", "reward": 1, "n": 0},
    {"problem": " a\n", "reward": 0, "n": 1},
    {"problem": "é", "reward": 1, "n": 2},
    {"problem": "e\u0301", "reward": 1, "n": 3},
    {"problem": "c", "reward": 0, "n": 4},
    {"problem": "a", "reward": 0, "n": 5},
    {"problem": "d", "reward": None, "n": 6},
    {"problem": " ", "reward": 1, "n": 7},
    {"problem": None, "reward": 1, "n": 8},
]
"""a is mixed (1 correct, 2 incorrect), é all correct, c all incorrect, d not graded; two lack a
problem."""
FIGURES = {
    "rows": 9,
    "problems": 4,
    "correct": 3,
    "incorrect": 3,
    "mixed_problems": 1,
    "mixed_rows": 3,
    "mixed_correct": 1,
    "mixed_incorrect": 2,
    "all_correct_problems": 1,
    "all_incorrect_problems": 1,
    "without_reward": 1,
    "without_problem": 2,
}


def figures(source: Path, **columns: str) -> dict[str, int]:
    return {one.name: one.found for one in recount(source, **columns)}


def test_figures_by_hand(folder: Folder) -> None:
    source = folder("source")
    write(source / "a.parquet", ROWS[:4])
    write(source / "b.parquet", ROWS[4:])
    assert figures(source) == FIGURES
    blank = figures(write(folder("blank") / "a.parquet", ROWS[7:8]))
    assert (blank["rows"], blank["problems"], blank["without_problem"]) == (1, 0, 1)


@pytest.mark.parametrize("kind", ["truth", "text", "fraction"])
def test_rewards_of_other_kinds(folder: Folder, kind: str) -> None:
    """True, "1" and 0.5 are correct; false, "0" and 0.0 are incorrect."""
    values: dict[str, dict[Any, Any]] = {
        "truth": {1: True, 0: False, None: None},
        "text": {1: "1", 0: "0", None: ""},
        "fraction": {1: 0.5, 0: 0.0, None: None},
    }
    rows = [{**row, "reward": values[kind][row["reward"]]} for row in ROWS]
    assert figures(write(folder("source") / "a.parquet", rows)) == FIGURES


@pytest.mark.parametrize("ending", ["", ".zst", ".gz"])
def test_lines_under_other_names(folder: Folder, ending: str) -> None:
    source = folder("source") / f"a.jsonl{ending}"
    named = [{'the "question"': row["problem"], "score": row["reward"]} for row in ROWS]
    data = "\n".join(json.dumps(row) for row in named).encode()
    with pa.output_stream(str(source), compression="detect") as stream:
        stream.write(data)
    assert figures(source, problem='the "question"', reward="score") == FIGURES


def test_beside_the_published_figures(folder: Folder) -> None:
    """The published ones agree among themselves, but for the number of problems."""
    source = write(folder("source") / "a.parquet", ROWS)
    beside = {one.name: one.published for one in recount(source)}
    assert beside["rows"] == 48_512 == PUBLISHED["correct"] + PUBLISHED["incorrect"]
    assert beside["mixed_rows"] == PUBLISHED["mixed_correct"] + PUBLISHED["mixed_incorrect"]
    assert beside["all_correct_problems"] is None


def test_what_cannot_be_counted_is_named(folder: Folder) -> None:
    source = folder("source")
    with pytest.raises(InputError, match=r"got no \.parquet, \.jsonl.* file"):
        recount(source)
    write(source / "a.parquet", [{"question": "q", "reward": 1}])
    with pytest.raises(InputError, match="no column problem; got question, reward"):
        recount(source)
    (source / "b.jsonl").write_text("{}")
    with pytest.raises(InputError, match="got Parquet and JSONL files"):
        recount(source)
    (source / "a.parquet").unlink()
    (source / "b.jsonl").write_text('{"problem": "q", "reward": 1}\n{"problem": ')
    with pytest.raises(InputError, match="cannot be read"):
        recount(source)
