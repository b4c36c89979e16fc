"""Source files to rows: what goes in comes out or is counted, in source order."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from curate_helpers import CONVERSATIONS, NEMOTRON, Folder, Rows, payload, read, record, talk, write

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.curate import source_files
from pcl_reasoner.curate.convert import ConvertConfig, convert


def test_convert_accounts_for_every_record(
    folder: Folder, context: StageContext, quarantined: Callable[[], Rows]
) -> None:
    source, output = folder("source"), folder("out")
    good = [record(f"p{i}", f"cot {i}") for i in range(700)]
    bad = {3: "malformed_metadata", 300: "malformed_messages", 699: "malformed_problem"}
    good[3]["metadata"] = "{"
    good[300]["messages"] = None
    good[699]["messages"][0]["content"] = None
    write(source / "b.parquet", good)
    write(source / "a" / "z.parquet", [record("first", license="cc"), record(" ")])
    (source / "README.md").write_text("not data")
    counts = convert(NEMOTRON, {"source": source}, output, context)
    assert (counts.unit, counts.read, counts.kept) == ("rows", 702, 698)
    assert counts.dropped == {**dict.fromkeys(sorted(bad.values()), 1), "malformed_problem": 2}
    aside = [(line["file"], line["row"], line["reason"]) for line in quarantined()]
    first = ("a/z.parquet", 1, "malformed_problem")
    assert aside == [first, *(("b.parquet", number, reason) for number, reason in bad.items())]
    assert '"cot 300"' not in quarantined()[2]["raw"]
    rows = read(output / "rows")
    numbers = [i for i in range(700) if i not in bad]
    assert [r["row_id"] for r in rows] == ["a/z.parquet:0", *(f"b.parquet:{i}" for i in numbers)]
    assert [r["cot"] for r in rows[1:]] == [f"cot {i}" for i in numbers]
    assert rows[0]["extra"] == '{"license": "cc"}'
    assert sorted(payload(output)) == ["rows/part-00000.parquet", "rows/part-00001.parquet"]


def test_convert_conversations(
    folder: Folder, context: StageContext, quarantined: Callable[[], Rows]
) -> None:
    """Defect 12: a bad line is counted, with its file and line."""
    output = folder("out")
    source = folder("source") / "math.jsonl"
    talk = json.dumps({"conversations": [{"value": "q"}, {"value": "a"}]}).encode()
    source.write_bytes(b"\n".join([talk, b"{", b"\xff", b"", talk]))
    counts = convert(CONVERSATIONS, {"source": source}, output, context)
    assert (counts.read, counts.kept) == (5, 2)
    assert counts.dropped == {"malformed_json": 2, "malformed_utf8": 1}
    assert [(line["file"], line["row"]) for line in quarantined()] == [
        ("math.jsonl", 1),
        ("math.jsonl", 2),
        ("math.jsonl", 3),
    ]
    assert [r["row_id"] for r in read(output / "rows")] == ["math.jsonl:0", "math.jsonl:4"]
    assert [r["ground_truth"] for r in read(output / "rows")] == ["", ""]


def test_convert_names_what_it_cannot_read(folder: Folder, context: StageContext) -> None:
    source = folder("source")

    def refused(config: ConvertConfig = NEMOTRON, path: Path = source) -> str:
        with pytest.raises(StageError) as caught:
            convert(config, {"source": path}, folder(f"out{len(outputs)}"), context)
        outputs.append(0)
        return str(caught.value)

    outputs: list[int] = []
    assert "no *.parquet file in it" in refused()
    assert "no *.jsonl or *.jsonl.zst or *.jsonl.gz file in it" in refused(CONVERSATIONS)
    assert "no such file" in refused(path=source / "none")
    write(source / "a.parquet", [{"messages": "[]", "license": "x"}])
    write(source / "b.parquet", [{"metadata": "{}"}])
    message = refused()
    assert "a.parquet: no column metadata" in message
    assert "got messages, license" in message
    assert "b.parquet: no column messages" in message
    (source / "b.parquet").unlink()
    whole = write(source / "a.parquet", [record(f"p{i}", "x" * i) for i in range(900)])
    data = whole.read_bytes()
    whole.write_bytes(data[: len(data) // 2])
    assert "a.parquet: not a complete Parquet file" in refused()
    middle = len(data) // 4
    whole.write_bytes(data[:middle] + bytes(200) + data[middle + 200 :])
    assert "a.parquet: not a complete Parquet file" in refused()
    whole.unlink()
    schema = pa.schema([("messages", pa.string()), ("metadata", pa.string())])
    pq.write_table(schema.empty_table(), whole)
    assert "its 1 files have no rows" in refused()


def test_pieces_of_a_file_become_parts(
    folder: Folder, context: StageContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten rows in groups of four, a piece a group: three parts, rows numbered through."""
    monkeypatch.setattr(source_files, "PIECE_BYTES", 1)
    source, output = folder("source") / "a.parquet", folder("out")
    rows = [record(f"p{i}", f"cot {i}") for i in range(10)]
    rows[5]["metadata"] = "{"
    pq.write_table(pa.Table.from_pylist(rows), source, row_group_size=4)
    counts = convert(NEMOTRON, {"source": source}, output, context)
    assert (counts.read, counts.kept, counts.info) == (10, 9, {"files": 1})
    assert [r["row_id"] for r in read(output / "rows")] == [
        f"a.parquet:{i}" for i in range(10) if i != 5
    ]
    assert len(list((output / "rows").iterdir())) == 3


def test_compressed_lines_and_lines_on_request(folder: Folder, context: StageContext) -> None:
    source, output = folder("source"), folder("out")
    lines = b"\n".join([talk("p"), talk("é")])
    (source / "a.jsonl.zst").write_bytes(pa.compress(lines, "zstd", asbytes=True))
    config = CONVERSATIONS.model_copy(update={"jsonl": True})
    assert convert(config, {"source": source}, output, context).kept == 2
    rows = read(output / "rows")
    assert [r["row_id"] for r in rows] == ["a.jsonl.zst:0", "a.jsonl.zst:1"]
    written = (output / "rows" / "part-00000.jsonl").read_text(encoding="utf-8")
    assert [json.loads(line) for line in written.splitlines()] == rows
    assert '"problem": "é"' in written
