"""Row groups by size, and parts that are whole or not there."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pcl_reasoner.curate import part_writer
from pcl_reasoner.curate.part_writer import atomic_part

SCHEMA = pa.schema([("n", pa.int64())])


def batch(*values: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": list(values)}, schema=SCHEMA)


def test_a_row_group_is_closed_at_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At 32 bytes, which are four numbers: 3 + 1, then 5 at once, then the 2 that are left."""
    monkeypatch.setattr(part_writer, "ROW_GROUP_BYTES", 32)
    with atomic_part(tmp_path / "a.parquet", SCHEMA) as write:
        for rows in ((0, 1, 2), (), (3,), (4, 5, 6, 7, 8), (9, 10)):
            write(batch(*rows))
    metadata = pq.read_metadata(tmp_path / "a.parquet")
    groups = [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)]
    assert groups == [4, 5, 2]
    assert pq.read_table(tmp_path / "a.parquet")["n"].to_pylist() == list(range(11))


def test_without_rows_there_is_no_row_group(tmp_path: Path) -> None:
    with atomic_part(tmp_path / "a.parquet", SCHEMA) as write:
        write(batch())
    assert pq.read_metadata(tmp_path / "a.parquet").num_row_groups == 0


@pytest.mark.parametrize("jsonl", [False, True])
def test_a_part_is_whole_or_not_there(tmp_path: Path, jsonl: bool) -> None:
    with (
        pytest.raises(ZeroDivisionError),
        atomic_part(tmp_path / "a.parquet", SCHEMA, jsonl) as write,
    ):
        write(batch(1))
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []
