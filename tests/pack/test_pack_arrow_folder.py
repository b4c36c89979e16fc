"""Arrow folders: read by datasets, equal bytes for equal rows."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pack_helpers import samples

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schemas import PACKED_ROWS, SEGMENTS
from pcl_reasoner.pack.arrow_folder import read_arrow_folder, write_arrow_folder


def write(folder: Path, table: pa.Table, rows: int = 2, shard_bytes: int = 1 << 30) -> Path:
    folder.mkdir()
    batches = table.to_batches(max_chunksize=rows)
    assert write_arrow_folder(folder, table.schema, batches, shard_bytes) == table.num_rows
    return folder


def test_datasets_reads_it(tmp_path: Path) -> None:
    import datasets

    table = samples([3, 5, 4])
    folder = write(tmp_path / "a", table)
    loaded = datasets.load_from_disk(str(folder))
    assert loaded.to_list() == table.to_pylist()
    assert loaded.features == datasets.Features.from_arrow_schema(SEGMENTS)
    assert loaded.data.table.schema.equals(SEGMENTS)


def test_all_types_of_a_packed_folder(tmp_path: Path) -> None:
    import datasets

    folder = write(tmp_path / "a", PACKED_ROWS.empty_table())
    loaded = datasets.load_from_disk(str(folder))
    assert loaded.features == datasets.Features.from_arrow_schema(PACKED_ROWS)
    assert len(loaded) == 0


def test_shards_are_read_in_order(tmp_path: Path) -> None:
    import datasets

    table = samples([3] * 25)
    folder = write(tmp_path / "a", table, rows=1, shard_bytes=1000)
    files = sorted(path.name for path in folder.glob("*.arrow"))
    assert len(files) > 2
    assert files[0] == f"data-00000-of-{len(files):05d}.arrow"
    assert datasets.load_from_disk(str(folder)).to_list() == table.to_pylist()
    assert read_arrow_folder(folder).equals(table)


def test_equal_rows_are_equal_bytes_and_others_have_another_fingerprint(tmp_path: Path) -> None:
    one, same = write(tmp_path / "a", samples([3, 5])), write(tmp_path / "b", samples([3, 5]))
    names = sorted(path.name for path in one.iterdir())
    assert names == ["data-00000-of-00001.arrow", "dataset_info.json", "state.json"]
    for name in names:
        assert (one / name).read_bytes() == (same / name).read_bytes()
    other = write(tmp_path / "c", samples([3, 6]))
    states = [json.loads((folder / "state.json").read_text()) for folder in (one, other)]
    assert states[0]["_fingerprint"] != states[1]["_fingerprint"]


def test_written_as_a_stream(tmp_path: Path) -> None:
    asked: list[int] = []

    def batches():  # type: ignore[no-untyped-def]
        for number, batch in enumerate(samples([3] * 6).to_batches(max_chunksize=1)):
            asked.append(number)
            if number == 5:
                # All earlier batches are on disk, none is waiting.
                sizes = [path.stat().st_size for path in tmp_path.iterdir()]
                assert sum(sizes) > 5 * 100
            yield batch

    assert write_arrow_folder(tmp_path, SEGMENTS, batches()) == 6
    assert asked == list(range(6))


def test_not_an_arrow_folder(tmp_path: Path) -> None:
    with pytest.raises(StageError, match="not an Arrow folder"):
        read_arrow_folder(tmp_path)
    folder = write(tmp_path / "a", samples([3]))
    data = folder / "data-00000-of-00001.arrow"
    data.write_bytes(data.read_bytes()[:50])
    with pytest.raises(StageError, match="not an Arrow folder"):
        read_arrow_folder(folder)
