"""The first answered row of every problem, by hand."""

from __future__ import annotations

import json
from typing import Any

import pyarrow.parquet as pq
import pytest
from curate_helpers import Folder, row, write

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.curate.unique import UniqueConfig, unique


def measured(problem: str, number: int, truth: str | None) -> dict[str, Any]:
    return row(problem, number, ground_truth=truth, pass_rate=0.75, mean_cot_tokens=5.5)


def test_unique_drops_blank_truths_before_it_chooses(folder: Folder, context: StageContext) -> None:
    source, output = folder("source"), folder("out")
    # 12 rows before the last problem: row x:10 comes after x:9, though not as text.
    rows = [measured("a", 0, ""), measured("a", 1, " \n"), measured("b", 2, "7")]
    rows += [measured("a", 3, "1"), measured("a", 4, "2"), measured("c", 5, None)]
    rows += [measured("b", n, " 7 ") for n in range(6, 9)]
    rows += [measured("z", 9, "9"), measured("y", 10, "10")]
    write(source / "rows" / "part-00000.parquet", rows[:5])
    write(source / "rows" / "part-00001.parquet", rows[5:])
    counts = unique(UniqueConfig(), {"rows": source}, output, context)
    assert (counts.read, counts.kept) == (11, 4)
    assert counts.dropped == {"blank_ground_truth": 3, "repeated_problem": 4}
    # a has 1 and 2; b has 7 three times and once with blanks around it, which is no conflict.
    assert counts.info == {"conflicting_ground_truths": 1}
    table = pq.read_table(output / "problems.parquet")
    assert table.column_names == [
        "problem_id",
        "problem",
        "ground_truth",
        "pass_rate",
        "mean_cot_tokens",
        "source_row_id",
    ]
    found = [(r["problem"], r["ground_truth"], r["source_row_id"]) for r in table.to_pylist()]
    assert found == [("b", "7", "x:2"), ("a", "1", "x:3"), ("z", "9", "x:9"), ("y", "10", "x:10")]
    assert set(table["pass_rate"].to_pylist()) == {0.75}


def test_unique_of_nothing(folder: Folder, context: StageContext) -> None:
    source = folder("source")
    write(source / "rows" / "part-00000.parquet", [measured("a", 0, "")])
    counts = unique(UniqueConfig(), {"rows": source}, folder("out"), context)
    assert (counts.kept, counts.dropped) == (0, {"blank_ground_truth": 1})
    assert pq.read_table(source.parent / "out" / "problems.parquet").num_rows == 0


def test_incorrect_input_names_file_and_columns(folder: Folder, context: StageContext) -> None:
    source = folder("source")
    with pytest.raises(StageError, match=r"rows: no \*.parquet file"):
        unique(UniqueConfig(), {"rows": source}, folder("out1"), context)
    write(source / "rows" / "part-00000.parquet", [row("a")])
    with pytest.raises(StageError, match="no column pass_rate, mean_cot_tokens; got row_id"):
        unique(UniqueConfig(), {"rows": source}, folder("out2"), context)


def test_json_lines_on_request(folder: Folder, context: StageContext) -> None:
    """The same problems, in the same order; texts as they are, a NUL among them."""
    source, output = folder("source"), folder("out")
    rows = [measured("ä\0b", 0, "7"), measured("c", 1, "8"), measured("c", 2, "8")]
    write(source / "rows" / "part-00000.parquet", rows)
    counts = unique(UniqueConfig(jsonl=True), {"rows": source}, output, context)
    assert counts.kept == 2
    lines = (output / "problems.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == pq.read_table(
        output / "problems.parquet"
    ).to_pylist()
    assert [json.loads(line)["problem"] for line in lines] == ["ä\0b", "c"]
    assert sorted(path.name for path in output.iterdir()) == ["problems.jsonl", "problems.parquet"]
