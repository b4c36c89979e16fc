"""Everything that can be wrong with a source: in = out + kept apart, with file, row and reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from curate_helpers import CONVERSATIONS, NEMOTRON, Folder, Rows, read, record, talk, write

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.stage import Counts, StageContext
from pcl_reasoner.curate import source_files
from pcl_reasoner.curate.convert import convert

GOOD = talk()
DOUBLE = b'{"conversations": [], "conversations": [{"value": "q"}, {"value": "a"}]}'
NESTED = GOOD[:-1] + b', "meta": [{"a": 1, "a": 2}]}'

Apart = Callable[[], Rows]


def convert_lines(data: bytes, folder: Folder, context: StageContext) -> Counts:
    source = folder("source") / "a.jsonl"
    source.write_bytes(data)
    return convert(CONVERSATIONS, {"source": source}, folder("out"), context)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b'{"conversations": "\xff"}', "malformed_utf8"),
        (talk("q\ud800"), "malformed_utf8"),
        (GOOD.replace(b'"q"', b'"q\x00"'), "malformed_json"),
        (bytes(4096), "malformed_json"),
        (b"", "malformed_json"),
        (GOOD + GOOD, "malformed_json"),
        (GOOD[:-3], "malformed_json"),
        (talk(score=float("nan")), "malformed_json"),
        (talk(score=float("-inf")), "malformed_json"),
        (GOOD[:-1] + b', "score": 1e999}', "malformed_json"),
        (DOUBLE, "malformed_duplicate_key"),
        (NESTED, "malformed_duplicate_key"),
        (b'{"turns": []}', "malformed_messages"),
        (b'{"conversations": "q"}', "malformed_messages"),
        (b'{"conversations": [{"value": 7}, {"value": "a"}]}', "malformed_problem"),
    ],
    ids=range(15),
)
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_bad_line_costs_itself_alone(
    bad: bytes, reason: str, end: bytes, folder: Folder, context: StageContext, quarantined: Apart
) -> None:
    counts = convert_lines(end.join([GOOD, bad, GOOD, b""]), folder, context)
    assert (counts.read, counts.kept, counts.dropped) == (3, 2, {reason: 1})
    (aside,) = quarantined()
    shown = bad[:4096].decode("utf-8", "replace")
    assert aside == {"file": "a.jsonl", "row": 1, "reason": reason, "raw": shown}


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "BOM"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"], ids=["LF", "CRLF"])
def test_marks_and_line_ends_are_no_fault(
    mark: bytes, end: bytes, folder: Folder, context: StageContext, tmp_path: Path
) -> None:
    """Nor is a last line without an end."""
    counts = convert_lines(mark + end.join([GOOD, talk("r")]), folder, context)
    assert (counts.read, counts.kept) == (2, 2)
    assert [row["problem"] for row in read(tmp_path / "out" / "rows")] == ["q", "r"]


def test_a_cut_last_line_is_told(folder: Folder, context: StageContext, quarantined: Apart) -> None:
    counts = convert_lines(b"\n".join([GOOD, GOOD, GOOD])[:-20], folder, context)
    assert (counts.read, counts.kept, counts.dropped) == (3, 2, {"malformed_json": 1})
    assert (quarantined()[0]["row"], quarantined()[0]["raw"]) == (2, GOOD[:-20].decode())


def test_an_escaped_nul_is_text(folder: Folder, context: StageContext, tmp_path: Path) -> None:
    assert convert_lines(talk("a\0b", "c\0d"), folder, context).kept == 1
    (row,) = read(tmp_path / "out" / "rows")
    assert (row["problem"], row["cot"]) == ("a\0b", "c\0d")


@pytest.mark.slow
def test_a_line_of_64_megabytes(folder: Folder, context: StageContext, quarantined: Apart) -> None:
    """Up to 64 MiB is read; one byte more is refused, and the lines around it are not."""
    room = source_files.LINE_BYTES - len(talk(cot="")) - 1
    fits, longer = talk(cot="x" * room), talk(cot="x" * (room + 1))
    assert len(fits) + 1 == 64 << 20
    counts = convert_lines(b"\n".join([GOOD, fits, longer, GOOD]), folder, context)
    assert (counts.read, counts.kept, counts.dropped) == (4, 3, {"malformed_too_long": 1})
    (aside,) = quarantined()
    assert (aside["row"], aside["raw"]) == (2, longer[:4096].decode())


def convert_parquet(
    files: dict[str, Rows | pa.Table], folder: Folder, context: StageContext
) -> Counts:
    source = folder("source")
    for name, rows in files.items():
        if isinstance(rows, pa.Table):
            pq.write_table(rows, source / name)
        else:
            write(source / name, rows)
    return convert(NEMOTRON, {"source": source}, folder("out"), context)


def test_duplicate_keys_in_metadata(
    folder: Folder, context: StageContext, quarantined: Apart
) -> None:
    """Which of two answers is meant cannot be known; json would take the last."""
    double = '{"expected_answer": "1", "expected_answer": "2"}'
    rows = [record("p"), {**record("q"), "metadata": double}]
    counts = convert_parquet({"a.parquet": rows}, folder, context)
    assert (counts.kept, counts.dropped) == (1, {"malformed_duplicate_key": 1})
    assert (quarantined()[0]["file"], quarantined()[0]["row"]) == ("a.parquet", 1)


def test_a_row_whose_metadata_lack_the_key(
    folder: Folder, context: StageContext, quarantined: Apart
) -> None:
    rows = [record("p"), {**record("q"), "metadata": '{"problem_source": "x"}'}, record("r")]
    counts = convert_parquet({"a.parquet": rows}, folder, context)
    assert (counts.kept, counts.dropped) == (2, {"malformed_metadata": 1})
    assert quarantined()[0]["row"] == 1


def test_files_of_several_schemas(folder: Folder, context: StageContext, tmp_path: Path) -> None:
    """Messages as list or JSON, metadata as JSON or struct, columns more, fewer, reordered."""
    turns = json.dumps([{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}])
    struct = {"expected_answer": "42", "problem_source": "test"}
    coded = pa.array([turns]).dictionary_encode()
    files: dict[str, Rows | pa.Table] = {
        "a.parquet": [record("q", "a", year=2024)],
        "b.parquet": [{"metadata": struct, "messages": turns}],
        "c.parquet": pa.table({"messages": coded, "metadata": ['{"expected_answer": 42}']}),
        "d.parquet": [record("q", "a", year="MMXXIV", note=None, score=float("nan"))],
    }
    counts = convert_parquet(files, folder, context)
    assert (counts.read, counts.kept) == (4, 4)
    rows = read(tmp_path / "out" / "rows")
    assert [(r["problem"], r["cot"], r["ground_truth"]) for r in rows] == [("q", "a", "42")] * 4
    assert [r["extra"] for r in rows] == [
        '{"year": 2024}',
        "{}",
        "{}",
        '{"note": null, "score": null, "year": "MMXXIV"}',
    ]


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"messages": ["[]"], "meta": ["{}"]}, "no column metadata"),
        ({"messages": ["[]"], "metadata": [7]}, "column metadata is int64"),
        ({"messages": [["q", "a"]], "metadata": ["{}"]}, "column messages is list"),
        ({"messages": ["[]"], "Metadata": ["{}"]}, "got messages, Metadata"),
    ],
)
def test_renamed_and_retyped_columns_stop_the_stage(
    columns: dict[str, Any], told: str, folder: Folder, context: StageContext
) -> None:
    """Before a row of any file is converted."""
    with pytest.raises(StageError, match=rf"b\.parquet: .*{told}"):
        convert_parquet(
            {"a.parquet": [record("p")], "b.parquet": pa.table(columns)}, folder, context
        )


def test_an_empty_file_is_told(folder: Folder, context: StageContext) -> None:
    text = {"messages": pa.string(), "metadata": pa.string()}
    empty = pa.schema(text).empty_table()
    counts = convert_parquet({"a.parquet": [record("p")], "b.parquet": empty}, folder, context)
    assert (counts.read, counts.info) == (1, {"files": 2})
    assert context.warnings == ["1 of 2 source files have no rows: b.parquet"]


def test_a_file_of_no_bytes(folder: Folder, context: StageContext) -> None:
    """No Parquet at all, and as JSON lines no row."""
    source = folder("source")
    (source / "a.jsonl").write_bytes(GOOD)
    (source / "b.jsonl").touch()
    (source / "b.parquet").touch()
    assert convert(CONVERSATIONS, {"source": source}, folder("out"), context).kept == 1
    assert context.warnings == [
        "1 of 2 source files have no rows: b.jsonl",
        "1 files in the source are not *.jsonl or *.jsonl.zst or *.jsonl.gz: b.parquet",
    ]

    with pytest.raises(StageError, match=r"b\.parquet: not a complete Parquet file"):
        convert(NEMOTRON, {"source": source}, folder("again"), context)


def test_files_of_other_endings_are_told(folder: Folder, context: StageContext) -> None:
    """A data set's card, its licence and hidden files are no data."""
    source = folder("source")
    (source / "data").mkdir()
    (source / ".cache").mkdir()
    for name in ("data/a.jsonl", "data/b.json", "c.jsonl.xz", "d.csv", "e.JSONL"):
        (source / name).write_bytes(GOOD)
    for name in ("README.md", "LICENSE", ".gitattributes", ".cache/x.lock"):
        (source / name).touch()
    assert convert(CONVERSATIONS, {"source": source}, folder("out"), context).kept == 1
    assert context.warnings == [
        "4 files in the source are not *.jsonl or *.jsonl.zst or *.jsonl.gz: c.jsonl.xz, d.csv, "
        "data/b.json, …"
    ]


def test_a_page_whose_checksum_is_wrong(folder: Folder, context: StageContext) -> None:
    """Without it, one changed letter would go by."""
    source = folder("source") / "a.parquet"
    table = pa.Table.from_pylist([record(f"question {i}", "answer " * 9) for i in range(50)])
    plain = {"use_dictionary": False, "compression": "none"}
    pq.write_table(table, source, write_page_checksum=True, **plain)
    data = source.read_bytes()
    where = data.index(b"question 17")
    source.write_bytes(data[:where] + b"Q" + data[where + 1 :])
    with pytest.raises(StageError, match=r"a\.parquet: not a complete Parquet file"):
        convert(NEMOTRON, {"source": source}, folder("out"), context)


def test_equal_ids_and_equal_rows_stay(
    folder: Folder, context: StageContext, tmp_path: Path
) -> None:
    """A row counts as a pass; what it is called elsewhere is in extra, and its row_id is ours."""
    rows = [record("p", "a", uuid="same"), record("p", "a", uuid="same"), record("q", uuid="same")]
    counts = convert_parquet({"a.parquet": rows}, folder, context)
    assert (counts.read, counts.kept) == (3, 3)
    found = read(tmp_path / "out" / "rows")
    assert [r["row_id"] for r in found] == ["a.parquet:0", "a.parquet:1", "a.parquet:2"]
    assert found[0]["problem_id"] == found[1]["problem_id"] != found[2]["problem_id"]


def test_equivalent_spellings_are_one_problem(
    folder: Folder, context: StageContext, tmp_path: Path
) -> None:
    """Equal in NFC and but for ASCII blanks at the ends: one. Compatible only (NFKC): not."""
    spellings = ["Å = ½?", "A\u030a = ½?", "\u212b = ½?\n", "Å = 1⁄2?", "å = ½?"]
    rows = [record(spelling) for spelling in spellings]
    convert_parquet({"a.parquet": rows}, folder, context)
    found = read(tmp_path / "out" / "rows")
    assert [r["problem"] for r in found] == spellings
    assert len({r["problem_id"] for r in found[:3]}) == 1
    assert len({r["problem_id"] for r in found}) == 3
