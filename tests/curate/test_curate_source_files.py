"""Pieces of files by hand: every line and row once, with its own number, however a file is cut."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from curate_helpers import Folder

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schema import DataEngine
from pcl_reasoner.core.stage import NoProgress
from pcl_reasoner.curate import source_files
from pcl_reasoner.curate.source_files import Piece, pieces_of, read_lines, row_group_spans

LOCAL = DataEngine()


def pieces(path: Path) -> list[Piece]:
    return pieces_of([(path, path.name)], "conversations", LOCAL, NoProgress())


def lines_of(path: Path) -> dict[int, bytes]:
    """Number -> line, of all pieces; no number stands twice."""
    found: dict[int, bytes] = {}
    for piece in pieces(path):
        numbered = enumerate(
            (line for batch in read_lines(piece) for line, _ in batch), piece.first
        )
        for number, line in numbered:
            assert number not in found
            found[number] = line
    return found


def test_pieces_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines start at bytes 0, 3, 6, 7 and 15; pieces of 6 bytes start at 0, 6 and 12."""
    monkeypatch.setattr(source_files, "PIECE_BYTES", 6)
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"ab\ncd\n\nefghijk\nlm")
    first, second, third = pieces(path)
    assert (first.first, first.start, first.stop) == (0, 0, 6)
    assert (second.first, second.start, second.stop) == (2, 6, 12)
    assert (third.first, third.start, third.stop) == (4, 12, None)
    assert list(read_lines(first)) == [[(b"ab\n", True), (b"cd\n", True)]]
    assert list(read_lines(second)) == [[(b"\n", True), (b"efghijk\n", True)]]
    assert list(read_lines(third)) == [[(b"lm", True)]]
    assert [piece.index for piece in (first, second, third)] == [0, 1, 2]


def test_any_cut_gives_the_same_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = random.Random(0)
    path = tmp_path / "a.jsonl"
    for size in (1, 2, 3, 7, 64):
        monkeypatch.setattr(source_files, "PIECE_BYTES", size)
        for _ in range(20):
            text = bytes(drawn.choice(b"ab\n") for _ in range(drawn.randint(0, 60)))
            path.write_bytes(text)
            assert lines_of(path) == dict(enumerate(text.splitlines(keepends=True)))


def test_a_line_that_is_too_long_is_cut_and_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It starts in the first piece and covers the second and third."""
    monkeypatch.setattr(source_files, "PIECE_BYTES", 8)
    monkeypatch.setattr(source_files, "LINE_BYTES", 10)
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"ab\n" + b"x" * 22 + b"\n" + b"y" * 9 + b"\nz")
    batches = [list(read_lines(piece)) for piece in pieces(path)]
    assert batches[0] == [[(b"ab\n", True), (b"x" * 10, False)]]
    rest = [line for found in batches[1:] for batch in found for line in batch]
    assert rest == [(b"y" * 9 + b"\n", True), (b"z", True)]
    for size in (8, 24):  # at 24 the line is cut before its piece ends
        monkeypatch.setattr(source_files, "PIECE_BYTES", size)
        assert set(lines_of(path)) == {0, 1, 2, 3}


def test_batches_are_bound_by_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_files, "BATCH_BYTES", 10)
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"123456\n123456\n1\n1234567890123\n12\n")
    (piece,) = pieces(path)
    sizes = [[len(line) for line, _ in batch] for batch in read_lines(piece)]
    assert sizes == [[7, 7], [2, 14], [3]]


@pytest.mark.parametrize("ending", [".zst", ".gz"])
def test_compressed_lines(tmp_path: Path, ending: str) -> None:
    """Two frames, one after the other, as tools that append write them; and a file cut in two."""
    text = b"".join(b"line %d\n" % number for number in range(5000))
    path = tmp_path / f"a.jsonl{ending}"
    frame = gzip.compress(text) if ending == ".gz" else pa.compress(text, "zstd", asbytes=True)
    path.write_bytes(frame + frame)
    assert lines_of(path) == dict(enumerate((text + text).splitlines(keepends=True)))
    path.write_bytes(frame[: len(frame) // 2])
    with pytest.raises(StageError, match=rf"a.jsonl{ending}: not a complete compressed file"):
        lines_of(path)
    path.write_bytes(text)
    with pytest.raises(StageError, match=rf"a.jsonl{ending}: not a complete compressed file"):
        lines_of(path)


def test_row_groups_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups of 4, 4 and 2 rows: one a piece, or all of them."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": ["text"] * 10}), path, row_group_size=4)
    assert row_group_spans(path) == [(0, 0, 3)]
    monkeypatch.setattr(source_files, "PIECE_BYTES", 1)
    assert row_group_spans(path) == [(0, 0, 1), (4, 1, 2), (8, 2, 3)]
    pq.write_table(pa.table({"x": pa.array([], pa.string())}), path)
    assert row_group_spans(path)[0][0] == 0


def test_files_in_the_order_of_their_names(folder: Folder) -> None:
    source = folder("source")
    for name in ("b.jsonl", "a.jsonl.zst", "a.jsonl", "c.json"):
        (source / name).touch()
    names = [name for _, name in source_files.files_of(source, "conversations")]
    assert names == ["a.jsonl", "a.jsonl.zst", "b.jsonl"]
