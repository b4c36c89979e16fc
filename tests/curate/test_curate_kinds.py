"""Kind and checks from a published file to the problems, and every bad record counted."""

from __future__ import annotations

import base64
import json
import os
import pickle
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from curate_helpers import Folder, Rows, read, record, talk, write
from pydantic import ValidationError

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.curate.convert import ConvertConfig, convert
from pcl_reasoner.curate.difficulty import DifficultyConfig, difficulty
from pcl_reasoner.curate.lengths import LengthsConfig, lengths
from pcl_reasoner.curate.unique import UniqueConfig, unique

Apart = Callable[[], Rows]


def code(problem: str, tests: Any, **others: Any) -> dict[str, Any]:
    """One record of TACO."""
    return {"question": problem, "input_output": json.dumps(tests), **others}


def stdin(number: int) -> dict[str, Any]:
    return {"inputs": [f"{i}\n" for i in range(number)], "outputs": ["x"] * number}


TWO_TYPES = [
    {"input": "1", "output": "1", "type": "stdin"},
    {"input": "1", "output": "1", "type": "functional"},
]


def lines(path: Path, records: Rows) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in records), encoding="utf-8")
    return path


def test_parquet_and_lines_in_one_source(
    folder: Folder, context: StageContext, tmp_path: Path
) -> None:
    source, output = folder("source"), folder("out")
    write(source / "b.parquet", [code("p", stdin(2)), code("q", stdin(12))])
    lines(source / "a.jsonl", [code("r", stdin(1), difficulty="EASY")])
    counts = convert(ConvertConfig(format="taco"), {"source": source}, output, context)
    assert (counts.read, counts.kept, counts.info) == (3, 3, {"files": 2})
    rows = read(output / "rows")
    assert [(r["row_id"], r["kind"], r["cot"], r["ground_truth"]) for r in rows] == [
        ("a.jsonl:0", "code", "", ""),
        ("b.parquet:0", "code", "", ""),
        ("b.parquet:1", "code", "", ""),
    ]
    assert [len(json.loads(r["checks"])["tests"]["cases"]) for r in rows] == [1, 2, 10]
    config = ConvertConfig(format="taco", max_tests=11)
    convert(config, {"source": source}, folder("more"), context)
    assert len(json.loads(read(tmp_path / "more" / "rows")[2]["checks"])["tests"]["cases"]) == 11


def test_every_bad_record_is_counted_with_what_is_wrong(
    folder: Folder, context: StageContext, quarantined: Apart
) -> None:
    """In = out + quarantined, in Parquet, whose records are shown as JSON."""
    bad = [
        code("p1", []),
        code("p2", {"inputs": ["1", "2"], "outputs": ["1"]}),
        code("p3", {"inputs": ["x"], "outputs": ["1"], "fn_name": "f"}),
        code("p4", {"inputs": ["1"], "outputs": ["1"], "fn_name": "f g"}),
        code("p5", TWO_TYPES),
        code("p6", stdin(1), solutions=json.dumps(["x\0"])),
        code(" ", stdin(1)),
    ]
    for one in bad[:5]:
        one["solutions"] = None
    bad[6]["solutions"] = None
    source, output = folder("source"), folder("out")
    write(source / "a.parquet", [*bad, code("good", stdin(1), solutions=None)])
    counts = convert(ConvertConfig(format="taco"), {"source": source}, output, context)
    assert (counts.read, counts.kept) == (8, 1)
    assert counts.dropped == {
        "malformed_problem": 1,
        "malformed_tests": 3,
        "mixed_tests": 1,
        "no_tests": 1,
        "nul": 1,
    }
    shown = [(line["row"], line["reason"], line["raw"].split("\n")[0]) for line in quarantined()]
    assert [(row, reason) for row, reason, _ in shown] == [
        (0, "no_tests"),
        (1, "malformed_tests"),
        (2, "malformed_tests"),
        (3, "malformed_tests"),
        (4, "mixed_tests"),
        (5, "nul"),
        (6, "malformed_problem"),
    ]
    assert shown[1][2] == "2 inputs and 1 outputs, expected as many"
    assert shown[2][2] == "argument or result 'x', expected JSON"
    assert shown[3][2] == "entry 'f g', expected a function's name"
    assert json.loads(quarantined()[1]["raw"].split("\n", 1)[1])["question"] == "p2"
    assert json.loads(quarantined()[0]["raw"])["question"] == "p1"  # the reason says it all


class Command:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("never_made",)


def test_a_pickle_that_is_a_program(
    folder: Folder, context: StageContext, quarantined: Apart, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The opcode is in the quarantine file, before the line as it was read."""
    packed = base64.b64encode(zlib.compress(pickle.dumps(Command(), 0))).decode()
    value = {
        "question_content": "q",
        "public_test_cases": "[]",
        "private_test_cases": packed,
        "metadata": "{}",
    }
    source, output = folder("source"), folder("out")
    monkeypatch.chdir(output)
    lines(source / "test.jsonl", [value])
    counts = convert(ConvertConfig(format="livecodebench"), {"source": source}, output, context)
    assert counts.dropped == {"malformed_tests": 1}
    named, line = quarantined()[0]["raw"].split("\n", 1)
    assert named == ("pickle with opcode GLOBAL at byte 0, expected one text and nothing else")
    assert json.loads(line) == value
    assert not (output / "never_made").exists()


def test_contests_outside_of_the_dates_are_drops_and_not_malformed(
    folder: Folder, context: StageContext, quarantined: Apart
) -> None:
    tests = '[{"input": "3\\n", "output": "6\\n", "testtype": "stdin"}]'
    days = ["2024-09-28T00:00:00", "2024-10-01T00:00:00", "2024-12-01T00:00:00"]
    values = [
        {
            "question_content": f"q {day}",
            "contest_date": day,
            "public_test_cases": tests,
            "private_test_cases": "[]",
            "metadata": "{}",
        }
        for day in days
    ]
    source, output = folder("source"), folder("out")
    lines(source / "test.jsonl", values)
    given = {"format": "livecodebench", "contest_since": "2024-10-01"}
    config = ConvertConfig.model_validate({**given, "contest_before": "2024-12-01"})
    counts = convert(config, {"source": source}, output, context)
    assert (counts.read, counts.kept, counts.dropped) == (3, 1, {"outside_dates": 2})
    assert [row["problem"] for row in read(output / "rows")] == ["q 2024-10-01T00:00:00"]
    assert [one["raw"].split("\n")[0] for one in quarantined()] == [
        "contest_date 2024-09-28",
        "contest_date 2024-12-01",
    ]
    hashed = config.hashed()
    assert (hashed["contest_since"], hashed["contest_before"]) == ("2024-10-01", "2024-12-01")
    with pytest.raises(ValidationError, match="taco has no dates of contests"):
        ConvertConfig.model_validate({**given, "format": "taco"})
    with pytest.raises(ValidationError, match="no day is since 2024-10-01 and before 2024-09-01"):
        ConvertConfig.model_validate({**given, "contest_before": "2024-09-01"})


def test_the_kind_of_a_format_and_a_kind_that_is_given(
    folder: Folder, context: StageContext, tmp_path: Path
) -> None:
    source = folder("source")
    (source / "a.jsonl").write_bytes(talk("q", "a"))
    for number, (format, kind) in enumerate(
        [("conversations", "math"), ("conversations", "science")]
    ):
        given = None if number == 0 else "science"
        config = ConvertConfig.model_validate({"format": format, "kind": given})
        convert(config, {"source": source}, folder(f"out{number}"), context)
        (row,) = read(tmp_path / f"out{number}" / "rows")
        assert (row["kind"], row["checks"]) == (kind, "")
    with pytest.raises(ValidationError, match="'math', 'code', 'instruction', 'chat' or 'science'"):
        ConvertConfig.model_validate({"format": "chat", "kind": "poetry"})


def test_no_answer_keeps_what_is_checked_otherwise(folder: Folder, context: StageContext) -> None:
    source = folder("source")
    lines(source / "a.jsonl", [{"messages": [{"role": "user", "content": "Hi."}]}])
    config = ConvertConfig(format="chat", filters=("no_answer",))
    assert convert(config, {"source": source}, folder("chat"), context).kept == 1
    lines(source / "a.jsonl", [code("p", stdin(1))])
    config = ConvertConfig(format="taco", filters=("no_answer",))
    assert convert(config, {"source": source}, folder("code"), context).kept == 1


def test_the_new_filters_count_and_quarantine(
    folder: Folder, context: StageContext, quarantined: Apart
) -> None:
    problems = ["p", "| a | b |\n|---|---|\n| 1 | 2 |", "\u2554\u2550\u2550\u2557 p", "6\u00b77?"]
    source, output = folder("source"), folder("out")
    write(source / "a.parquet", [code(problem, stdin(1)) for problem in problems])
    filters = ("table", "non_letters")
    config = ConvertConfig(format="taco", filters=filters, max_non_letters=0.25)
    counts = convert(config, {"source": source}, output, context)
    assert (counts.kept, counts.dropped) == (2, {"non_letters": 1, "table": 1})
    assert [(line["row"], line["reason"]) for line in quarantined()] == [
        (1, "table"),
        (2, "non_letters"),
    ]


def test_wrong_columns_stop_before_the_first_row(folder: Folder, context: StageContext) -> None:
    source = folder("source")
    write(source / "code.parquet", [{"prompt": "p", "answer": "7"}])
    with pytest.raises(StageError) as caught:
        convert(ConvertConfig(format="am_rl"), {"source": source}, folder("out"), context)
    message = str(caught.value)
    assert "code.parquet: no column data_source (string) and no column ability" in message
    assert "got prompt, answer" in message
    with pytest.raises(StageError, match=r"no \*\.parquet or \*\.jsonl or \*\.jsonl\.zst"):
        convert(ConvertConfig(format="am_rl"), {"source": folder("none")}, folder("out2"), context)


def test_an_exact_duplicate_is_dropped_by_unique(
    folder: Folder, context: StageContext, tmp_path: Path
) -> None:
    """Of a problem with and without tests, the row with tests stays."""
    source = folder("source")
    records = [
        code("p", stdin(1)),
        code(" p\n", stdin(2)),
        code("q", stdin(1)),
        code("p", stdin(3)),
    ]
    write(source / "a.parquet", records)
    convert(ConvertConfig(format="taco"), {"source": source}, folder("convert"), context)
    rows = {"rows": tmp_path / "convert"}
    counts = unique(UniqueConfig(measured=False), rows, folder("unique"), context)
    assert (counts.kept, counts.dropped) == (2, {"repeated_problem": 2})
    problems = pq.read_table(tmp_path / "unique" / "problems.parquet").to_pylist()
    assert [p["problem"] for p in problems] == ["p", "q"]
    assert len(json.loads(problems[0]["checks"])["tests"]["cases"]) == 1


def test_kind_and_checks_go_through_all_stages(
    folder: Folder, context: StageContext, tokenizer: Path, tmp_path: Path
) -> None:
    """Codeforces' responses: 3 of 4 samples of one problem, 4 of 4 of the other."""
    text = pa.string()
    tests = pa.struct([("input", pa.list_(text)), ("output", pa.list_(text))])
    schema = pa.schema(
        [("description", text), ("prompt", text), ("generation", text), ("public_tests", tests)]
    )
    given = {"description": "d", "public_tests": {"input": ["3"], "output": ["6"]}}
    records = [{**given, "prompt": name, "generation": "w w w"} for name in "aaabbbb"]
    source = folder("source") / "a.parquet"
    pq.write_table(pa.Table.from_pylist(records, schema), source)
    runs = {name: folder(name) for name in ("convert", "difficulty", "lengths", "unique")}
    convert(ConvertConfig(format="codeforces"), {"source": source}, runs["convert"], context)
    difficulty(DifficultyConfig(divisor=4), {"rows": runs["convert"]}, runs["difficulty"], context)
    inputs = {"rows": runs["difficulty"], "tokenizer": tokenizer}
    lengths(LengthsConfig(min_mean_tokens=3), inputs, runs["lengths"], context)
    assert unique(UniqueConfig(), {"rows": runs["lengths"]}, runs["unique"], context).kept == 1
    (problem,) = pq.read_table(runs["unique"] / "problems.parquet").to_pylist()
    assert (problem["problem"], problem["kind"], problem["pass_rate"]) == ("a", "code", 0.75)
    assert problem["mean_cot_tokens"] == 3.0
    assert json.loads(problem["checks"])["tests"]["cases"] == [{"input": "3", "output": "6"}]
    for stage in ("difficulty/partial", "difficulty/all_correct", "lengths/rows"):
        assert {(r["kind"], r["checks"]) for r in read(tmp_path / stage)} == {
            ("code", problem["checks"])
        }


def test_rows_of_the_old_formats_get_the_two_columns_only(
    folder: Folder, context: StageContext, tmp_path: Path
) -> None:
    source = folder("source")
    write(source / "a.parquet", [record("p", "so", license="cc")])
    convert(ConvertConfig(format="nemotron"), {"source": source}, folder("out"), context)
    (row,) = read(tmp_path / "out" / "rows")
    old = {name: value for name, value in row.items() if name not in ("kind", "checks")}
    assert old == {
        "row_id": "a.parquet:0",
        "problem_id": row["problem_id"],
        "problem": "p",
        "cot": "so",
        "ground_truth": "42",
        "problem_source": "test",
        "extra": '{"license": "cc"}',
    }
    assert (row["kind"], row["checks"]) == ("math", "")
