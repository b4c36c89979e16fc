"""Pass counts and rates by hand, and rows split by them."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from curate_helpers import Folder, read, row, write

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.curate.difficulty import DifficultyConfig, difficulty


def test_pass_rates(folder: Folder, context: StageContext) -> None:
    """16 of 16 and 32 of 32 are all correct; 12 → 12/16, 20 → 20/32, 1 → 1/16, 33 → 33/48."""
    source, output = folder("source"), folder("out")
    sizes = {"a": 16, "b": 12, "c": 20, "d": 32, "e": 1, "f": 33}
    # Interleaved and over two parts, so that a count a part or a run of rows would be incorrect.
    order = [p for i in range(33) for p, n in sizes.items() if i < n]
    rows = [row(problem, number) for number, problem in enumerate(order)]
    write(source / "rows" / "part-00000.parquet", rows[:50])
    write(source / "rows" / "part-00001.parquet", rows[50:])
    counts = difficulty(DifficultyConfig(), {"rows": source}, output, context)
    assert (counts.unit, counts.read, counts.kept) == ("rows", 114, 66)
    assert counts.dropped == {"all_correct": 48}
    assert counts.info == {
        "problems": {"all_correct": 2, "partial": 4},
        "problems_by_pass_count": {"1": 1, "12": 1, "16": 1, "20": 1, "32": 1, "33": 1},
    }
    rates = {"b": 0.75, "c": 0.625, "e": 0.0625, "f": 0.6875, "a": 1.0, "d": 1.0}
    for name, problems in (("partial", "bcef"), ("all_correct", "ad")):
        expected = [
            {**r, "pass_count": sizes[r["problem"]], "pass_rate": rates[r["problem"]]}
            for r in rows
            if r["problem"] in problems
        ]
        assert read(output / name) == expected
    schema = pq.read_schema(output / "partial" / "part-00000.parquet")
    assert schema.field("pass_count").type == pa.int32()
    assert schema.field("pass_rate").type == pa.float32()
    assert sorted(path.name for path in output.iterdir()) == ["all_correct", "partial"]


def test_another_divisor_and_nothing_left(folder: Folder, context: StageContext) -> None:
    source, output = folder("source"), folder("out")
    write(source / "rows" / "part-00000.parquet", [row("a", i) for i in range(4)])
    counts = difficulty(DifficultyConfig(divisor=4), {"rows": source}, output, context)
    assert (counts.kept, counts.dropped) == (0, {"all_correct": 4})
    assert read(output / "partial") == []
    assert "divisor" in context.warnings[0]


def test_bad_memory_limit_is_named(folder: Folder, context: StageContext) -> None:
    source, output = folder("source"), folder("out")
    write(source / "rows" / "part-00000.parquet", [row("a")])
    context.placement = Placement(duckdb_memory="lots")
    with pytest.raises(StageError, match="duckdb_memory lots"):
        difficulty(DifficultyConfig(), {"rows": source}, output, context)
    assert list(output.iterdir()) == []
