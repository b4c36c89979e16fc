"""The first answered row of every problem, by hand."""

from __future__ import annotations

import json
from typing import Any

import pyarrow.parquet as pq
import pytest
from curate_helpers import Folder, row, write

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.curate import parts
from pcl_reasoner.curate import unique as unique_module
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
        "kind",
        "checks",
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


def checked(problem: str, number: int, **others: Any) -> dict[str, Any]:
    """A row without an answer, as convert writes it."""
    given = {"cot": "", "ground_truth": "", "kind": "math", "checks": ""}
    return row(problem, number, **{**given, **others})


TESTS = '{"tests": {"format": "stdin", "cases": [{"input": "3", "output": "6"}]}}'


def test_checks_and_chats_need_no_ground_truth(folder: Folder, context: StageContext) -> None:
    """Rows straight from convert: the first row of a problem by which it can be checked."""
    source, output = folder("source"), folder("out")
    rows = [
        checked("code", 0, kind="code"),
        checked("code", 1, kind="code", checks=TESTS),
        checked("code", 2, kind="code", checks=TESTS.replace("6", "7")),
        checked("talk", 3, kind="chat"),
        checked("talk", 4, kind="chat"),
        checked("math", 5, ground_truth="7"),
        checked("math", 6, ground_truth="8"),
        checked("none", 7),
        checked("null", 8, kind=None, checks=None, ground_truth=None),
        checked("old", 9, kind=None, checks=None, ground_truth="9"),
    ]
    write(source / "rows" / "part-00000.parquet", rows[:4])
    write(source / "rows" / "part-00001.parquet", rows[4:])
    counts = unique(UniqueConfig(measured=False), {"rows": source}, output, context)
    assert (counts.read, counts.kept) == (10, 4)
    assert counts.dropped == {"blank_ground_truth": 3, "repeated_problem": 3}
    assert counts.info == {"conflicting_ground_truths": 1}
    table = pq.read_table(output / "problems.parquet")
    found = [(r["problem"], r["kind"], r["checks"], r["source_row_id"]) for r in table.to_pylist()]
    assert found == [
        ("code", "code", TESTS, "x:1"),
        ("talk", "chat", "", "x:3"),
        ("math", "math", "", "x:5"),
        ("old", "math", "", "x:9"),
    ]
    assert table["pass_rate"].null_count == table["mean_cot_tokens"].null_count == 4


def test_rows_of_older_artifacts_are_of_math(folder: Folder, context: StageContext) -> None:
    """One part has the columns, the other was written without them."""
    source, output = folder("source"), folder("out")
    write(source / "rows" / "part-00000.parquet", [measured("a", 0, "7"), measured("b", 1, "")])
    new = {"pass_rate": 0.5, "mean_cot_tokens": 1.0}
    write(source / "rows" / "part-00001.parquet", [checked("c", 2, kind="chat", **new)])
    assert unique(UniqueConfig(), {"rows": source}, output, context).kept == 2
    found = pq.read_table(output / "problems.parquet").to_pylist()
    assert [(r["problem"], r["kind"], r["checks"], r["pass_rate"]) for r in found] == [
        ("a", "math", "", 0.75),
        ("c", "chat", "", 0.5),
    ]


def test_unmeasured_rows_are_accepted_only_on_request(
    folder: Folder, context: StageContext
) -> None:
    source = folder("source")
    write(source / "rows" / "part-00000.parquet", [checked("a", 0, ground_truth="7")])
    with pytest.raises(StageError, match=r"no column pass_rate.*or set unique\.measured to false"):
        unique(UniqueConfig(), {"rows": source}, folder("out1"), context)
    assert unique(UniqueConfig(measured=False), {"rows": source}, folder("out2"), context).kept == 1


def test_large_tests_are_streamed(
    folder: Folder, context: StageContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forty problems with 1 MB of tests each: a batch never has more than its bytes."""
    monkeypatch.setattr(parts, "BATCH_BYTES", 2 << 20)
    sizes = []
    stream = unique_module.record_batches

    def watched(*given: Any) -> Any:
        for batch in stream(*given):
            sizes.append(batch.nbytes)
            yield batch

    monkeypatch.setattr(unique_module, "record_batches", watched)
    source, output = folder("source"), folder("out")
    rows = [checked(f"p{n}", n, kind="code", checks=f"{n:07}" * (150_000)) for n in range(40)]
    write(source / "rows" / "part-00000.parquet", rows)
    assert unique(UniqueConfig(measured=False), {"rows": source}, output, context).kept == 40
    assert len(sizes) >= 20
    assert max(sizes) < 5 << 20
    found = pq.read_table(output / "problems.parquet", columns=["checks"])["checks"].to_pylist()
    assert found == [row["checks"] for row in rows]
