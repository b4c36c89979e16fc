"""The stages on real files: what goes in comes out or is counted, in source order."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from curate_helpers import Rows, payload, read, record, write
from tokenizers import Tokenizer, models, pre_tokenizers

from pcl_reasoner.curate import problem_id
from pcl_reasoner.curate.stage import (
    ConvertConfig,
    DifficultyConfig,
    LengthsConfig,
    UniqueConfig,
    convert,
    difficulty,
    lengths,
    unique,
)
from pcl_reasoner.errors import StageError
from pcl_reasoner.stage import StageContext

Folder = Callable[[str], Path]
NEMOTRON = ConvertConfig(format="nemotron")
CONVERSATIONS = ConvertConfig(format="conversations")


def row(problem: str, number: int = 0, **others: Any) -> dict[str, Any]:
    """One row as the later stages read it."""
    return {
        "row_id": f"x:{number}",
        "problem_id": problem_id(problem),
        "problem": problem,
        "cot": "so",
        "ground_truth": "42",
        "problem_source": "test",
        "extra": "{}",
        **others,
    }


@pytest.fixture
def tokenizer(folder: Folder) -> Path:
    """A word is a token; its file cuts at 4 and pads to 4, which a count must not do."""
    words = Tokenizer(models.WordLevel({"w": 0, "?": 1}, unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.enable_truncation(4)
    words.enable_padding(length=4)
    path = folder("tokenizer")
    words.save(str(path / "tokenizer.json"))
    return path


def test_convert_accounts_for_every_record(
    folder: Folder, context: StageContext, kept_apart: Callable[[], Rows]
) -> None:
    source, output = folder("source"), folder("out")
    good = [record(f"p{i}", f"cot {i}") for i in range(700)]
    bad = {3: "malformed_metadata", 300: "malformed_messages", 699: "malformed_problem"}
    good[3]["metadata"] = "{"
    good[300]["messages"] = None
    good[699]["messages"][0]["content"] = None
    write(source / "b.parquet", good)
    write(source / "a" / "z.parquet", [record("first", license="cc")])
    (source / "README.md").write_text("not data")
    counts = convert(NEMOTRON, {"source": source}, output, context)
    assert (counts.unit, counts.read, counts.kept) == ("rows", 701, 698)
    assert counts.dropped == dict.fromkeys(sorted(bad.values()), 1)
    aside = [(line["file"], line["row"], line["reason"]) for line in kept_apart()]
    assert aside == [("b.parquet", number, reason) for number, reason in bad.items()]
    assert '"cot 300"' not in kept_apart()[1]["raw"]
    rows = read(output / "rows")
    numbers = [i for i in range(700) if i not in bad]
    assert [r["row_id"] for r in rows] == ["a/z.parquet:0", *(f"b.parquet:{i}" for i in numbers)]
    assert [r["cot"] for r in rows[1:]] == [f"cot {i}" for i in numbers]
    assert rows[0]["extra"] == '{"license": "cc"}'
    assert sorted(payload(output)) == ["rows/part-00000.parquet", "rows/part-00001.parquet"]


def test_convert_conversations(
    folder: Folder, context: StageContext, kept_apart: Callable[[], Rows]
) -> None:
    """Defect 12: a bad line is counted, with its file and line."""
    output = folder("out")
    source = folder("source") / "math.jsonl"
    talk = json.dumps({"conversations": [{"value": "q"}, {"value": "a"}]}).encode()
    source.write_bytes(b"\n".join([talk, b"{", b"\xff", b"", talk]))
    counts = convert(CONVERSATIONS, {"source": source}, output, context)
    assert (counts.read, counts.kept) == (5, 2)
    assert counts.dropped == {"malformed_json": 2, "malformed_utf8": 1}
    assert [(line["file"], line["row"]) for line in kept_apart()] == [
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
    assert "no *.jsonl file in it" in refused(CONVERSATIONS)
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
    assert "a.parquet: not a whole Parquet file" in refused()
    middle = len(data) // 4
    whole.write_bytes(data[:middle] + bytes(200) + data[middle + 200 :])
    assert "a.parquet: not a whole Parquet file" in refused()
    whole.unlink()
    schema = pa.schema([("messages", pa.string()), ("metadata", pa.string())])
    pq.write_table(schema.empty_table(), whole)
    assert "no row in them" in refused()


def test_pass_rates(folder: Folder, context: StageContext) -> None:
    """16 of 16 and 32 of 32 are all right; 12 → 12/16, 20 → 20/32, 1 → 1/16, 33 → 33/48."""
    source, output = folder("source"), folder("out")
    sizes = {"a": 16, "b": 12, "c": 20, "d": 32, "e": 1, "f": 33}
    # Interleaved and over two parts, so that a count a part or a run of rows would be wrong.
    order = [p for i in range(33) for p, n in sizes.items() if i < n]
    rows = [row(problem, number) for number, problem in enumerate(order)]
    write(source / "rows" / "part-00000.parquet", rows[:50])
    write(source / "rows" / "part-00001.parquet", rows[50:])
    counts = difficulty(DifficultyConfig(), {"rows": source}, output, context)
    assert (counts.unit, counts.read, counts.kept) == ("rows", 114, 66)
    assert counts.dropped == {"all_right": 48}
    assert counts.info == {
        "problems": {"all_right": 2, "partial": 4},
        "problems_by_pass_count": {"1": 1, "12": 1, "16": 1, "20": 1, "32": 1, "33": 1},
    }
    rates = {"b": 0.75, "c": 0.625, "e": 0.0625, "f": 0.6875, "a": 1.0, "d": 1.0}
    for name, problems in (("partial", "bcef"), ("all_right", "ad")):
        expected = [
            {**r, "pass_count": sizes[r["problem"]], "pass_rate": rates[r["problem"]]}
            for r in rows
            if r["problem"] in problems
        ]
        assert read(output / name) == expected
    schema = pq.read_schema(output / "partial" / "part-00000.parquet")
    assert schema.field("pass_count").type == pa.int32()
    assert schema.field("pass_rate").type == pa.float32()
    assert sorted(path.name for path in output.iterdir()) == ["all_right", "partial"]


def test_another_divisor_and_nothing_left(folder: Folder, context: StageContext) -> None:
    source, output = folder("source"), folder("out")
    write(source / "rows" / "part-00000.parquet", [row("a", i) for i in range(4)])
    counts = difficulty(DifficultyConfig(divisor=4), {"rows": source}, output, context)
    assert (counts.kept, counts.dropped) == (0, {"all_right": 4})
    assert read(output / "partial") == []
    assert "divisor" in context.warnings[0]


def lengths_source(path: Path) -> Path:
    """Means: a (4 + 6)/2 = 5, b 5.5, c 4, d 0."""
    tokens = [("a", 4), ("b", 5), ("c", 4), ("a", 6), ("d", 0), ("b", 6)]
    rows = [row(p, i, cot=" ".join(["w"] * n)) for i, (p, n) in enumerate(tokens)]
    write(path / "partial" / "part-00000.parquet", rows[:3])
    write(path / "partial" / "part-00001.parquet", rows[3:])
    return path


@pytest.mark.parametrize(
    ("inclusive", "problems", "means"),
    [(True, "abab", [5.0, 5.5, 5.0, 5.5]), (False, "bb", [5.5, 5.5])],
)
def test_mean_lengths(
    folder: Folder,
    context: StageContext,
    tokenizer: Path,
    inclusive: bool,
    problems: str,
    means: list[float],
) -> None:
    source, output = lengths_source(folder("source")), folder("out")
    config = LengthsConfig(min_mean_tokens=5, inclusive=inclusive)
    counts = lengths(config, {"rows": source, "tokenizer": tokenizer}, output, context)
    assert (counts.unit, counts.read, counts.kept) == ("rows", 6, len(problems))
    assert counts.dropped == {"short_mean_cot": 6 - len(problems)}
    assert counts.info["problems"]["kept"] == len(set(problems))
    rows = read(output / "rows")
    assert "".join(r["problem"] for r in rows) == problems
    assert [r["mean_cot_tokens"] for r in rows] == means
    assert [r["cot_tokens"] for r in rows] == [len(r["cot"].split()) for r in rows]
    histogram = json.loads((output / "histogram.json").read_text())
    edges = list(range(8))
    assert histogram == {
        "threshold": 5,
        "inclusive": inclusive,
        "rows": {"edges": edges, "counts": [1, 0, 0, 0, 2, 1, 2]},
        "problems": {"edges": edges, "counts": [1, 0, 0, 0, 1, 2, 0]},
    }
    assert sorted(path.name for path in output.iterdir()) == ["histogram.json", "rows"]


def test_lengths_needs_a_tokenizer(folder: Folder, context: StageContext) -> None:
    inputs = {"rows": lengths_source(folder("source")), "tokenizer": folder("model")}
    with pytest.raises(StageError, match="tokenizer.json"):
        lengths(LengthsConfig(min_mean_tokens=5), inputs, folder("out"), context)


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


def test_wrong_input_names_file_and_columns(folder: Folder, context: StageContext) -> None:
    source = folder("source")
    with pytest.raises(StageError, match=r"rows: no \*.parquet in it"):
        unique(UniqueConfig(), {"rows": source}, folder("out1"), context)
    write(source / "rows" / "part-00000.parquet", [row("a")])
    with pytest.raises(StageError, match="no column pass_rate, mean_cot_tokens; got row_id"):
        unique(UniqueConfig(), {"rows": source}, folder("out2"), context)


def test_bad_memory_limit_is_named(folder: Folder, context: StageContext) -> None:
    source, output = folder("source"), folder("out")
    write(source / "rows" / "part-00000.parquet", [row("a")])
    context.placement = {"duckdb_memory": "lots"}
    with pytest.raises(StageError, match="duckdb_memory lots"):
        difficulty(DifficultyConfig(), {"rows": source}, output, context)
    assert list(output.iterdir()) == []


def walk(source: Path, runs: Path, tokenizer: Path, threads: int) -> Path:
    """All four stages."""
    context = StageContext("curate", runs.parent / "apart.jsonl", {"threads": threads})
    folders = [runs / name for name in ("convert", "difficulty", "lengths", "unique")]
    for folder in folders:
        folder.mkdir(parents=True)
    convert(NEMOTRON, {"source": source}, folders[0], context)
    difficulty(DifficultyConfig(divisor=4), {"rows": folders[0]}, folders[1], context)
    inputs = {"rows": folders[1], "tokenizer": tokenizer}
    lengths(LengthsConfig(min_mean_tokens=6), inputs, folders[2], context)
    unique(UniqueConfig(), {"rows": folders[2]}, folders[3], context)
    return runs


def some_records() -> Rows:
    """300 problems of 1 to 6 rows, two spellings each, scattered; every fifth lacks an answer."""
    records: Rows = []
    for i in range(300):
        for k in range(1 + i % 6):
            spelling = f"Café {i}" if k % 2 else f" Cafe\u0301 {i}\n"
            answer = None if i % 5 == 0 else str(i)
            records.append(record(spelling, " ".join(["w"] * (1 + (7 * i + k) % 13)), answer))
    return sorted(records, key=lambda r: hashlib.sha256(json.dumps(r).encode()).digest())


def test_walk_again_is_byte_identical(folder: Folder, tmp_path: Path, tokenizer: Path) -> None:
    records = some_records()
    source = folder("source")
    for start in range(0, len(records), 400):
        write(source / f"{start:04d}.parquet", records[start : start + 400])
    once = payload(walk(source, tmp_path / "elsewhere" / "one [1]", tokenizer, threads=1))
    again = payload(walk(source, tmp_path / "two", tokenizer, threads=4))
    assert len(once) == 3 + 6 + 4 + 1
    assert once == again


def test_problems_do_not_depend_on_the_order(
    folder: Folder, tmp_path: Path, tokenizer: Path
) -> None:
    """The set of problems is that worked out here, whichever way the rows lie."""
    records = some_records()
    expected = set()
    for i in range(300):
        count = 1 + i % 6
        tokens = [1 + (7 * i + k) % 13 for k in range(count)]
        if count % 4 and sum(tokens) / count >= 6 and i % 5:
            rate = count / (4 * math.ceil(count / 4))
            expected.add((problem_id(f"Café {i}"), str(i), rate))
    assert 50 < len(expected) < 250
    for name, order in (("forth", records), ("back", records[::-1])):
        source = folder(f"{name}_source")
        write(source / "a.parquet", order[:500])
        write(source / "b.parquet", order[500:])
        runs = walk(source, tmp_path / name, tokenizer, threads=2)
        problems = pq.read_table(runs / "unique" / "problems.parquet").to_pylist()
        assert len(problems) == len(expected)
        found = {(p["problem_id"], p["ground_truth"], p["pass_rate"]) for p in problems}
        assert found == expected
        row_ids = [p["source_row_id"].split(":") for p in problems]
        positions = [(file, int(number)) for file, number in row_ids]
        assert positions == sorted(positions)
        texts = {("a.parquet", i): r for i, r in enumerate(order[:500])}
        texts |= {("b.parquet", i): r for i, r in enumerate(order[500:])}
        for problem, position in zip(problems, positions, strict=True):
            assert problem["problem"] == texts[position]["messages"][0]["content"]


def test_parts_without_rows_go_through(
    folder: Folder, tmp_path: Path, tokenizer: Path, context: StageContext
) -> None:
    """A source file of refused records only leaves an empty part, and the walk goes on."""
    source = folder("source")
    write(source / "a.parquet", [{**record("p"), "metadata": "{"}])
    write(source / "b.parquet", [record("p", "w w w w w w")])
    write(source / "c.parquet", [record("q", "w")])
    runs = walk(source, tmp_path / "some", tokenizer, threads=2)
    problems = pq.read_table(runs / "unique" / "problems.parquet").to_pylist()
    assert [p["source_row_id"] for p in problems] == ["b.parquet:0"]
    rest = {"rows": runs / "convert"}
    difficulty(DifficultyConfig(divisor=1), rest, folder("none"), context)
    inputs = {"rows": tmp_path / "none", "tokenizer": tokenizer}
    counts = lengths(LengthsConfig(min_mean_tokens=0), inputs, folder("long"), context)
    assert (counts.read, counts.kept, counts.dropped) == (0, 0, {})
    counts = unique(UniqueConfig(), {"rows": tmp_path / "long"}, folder("last"), context)
    assert (counts.read, counts.kept, counts.dropped) == (0, 0, {})
    assert len(context.warnings) == 3
