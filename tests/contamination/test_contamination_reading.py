"""What a row's question is, in the forms that data come in, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pcl_reasoner.contamination.reading import ProblemRows, data_files, read_questions, read_rows
from pcl_reasoner.core.errors import InputError, StageError

V1 = {"conversations": [{"from": "human", "value": "One?"}, {"from": "assistant", "value": "1"}]}
OPENAI = {
    "messages": [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Two?"},
        {"role": "assistant", "content": "2"},
    ]
}


def read(path: Path, column: str | None = None) -> tuple[ProblemRows, list[tuple[str, int, str]]]:
    apart: list[tuple[str, int, str]] = []
    files, root = data_files(path)
    rows = read_rows(
        files, root, lambda file, row, why, raw: apart.append((file, row, why)), column
    )
    return rows, apart


def test_questions_of_all_forms_are_found_by_themselves(tmp_path: Path) -> None:
    records = [V1, OPENAI, {"problem": "Three?"}, {"question": "Four?"}, {"prompt": "Five?"}]
    path = tmp_path / "data.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    rows, apart = read(path)
    assert rows.problem == ["One?", "Two?", "Three?", "Four?", "Five?"]
    assert (rows.number, set(rows.file), apart) == ([0, 1, 2, 3, 4], {"data.jsonl"}, [])


def test_parquet_and_saved_arrow_folders(tmp_path: Path) -> None:
    import datasets

    table = pa.table({"id": [7, 8], "conversations": [V1["conversations"], None]})
    (tmp_path / "parts").mkdir()
    pq.write_table(table, tmp_path / "parts" / "a.parquet")
    pq.write_table(table.slice(0, 1), tmp_path / "parts" / "b.parquet")
    rows, apart = read(tmp_path / "parts")
    assert (rows.number, rows.file) == ([0, 2], ["a.parquet", "b.parquet"])
    assert apart == [("a.parquet", 1, "malformed_no_problem")]
    datasets.Dataset(table).save_to_disk(str(tmp_path / "saved"))
    rows, _ = read(tmp_path / "saved")
    assert rows.problem == ["One?"]


def test_bad_rows_are_counted_and_quarantined_by_reason(tmp_path: Path) -> None:
    lines = [
        b'{"problem": "Good?"}',
        b'{"problem": ""}',
        b'{"problem": 7}',
        b'{"problem": "' + b"x" * 1_000_001 + b'"}',
        b'{"problem": "\xff"}',
        b'{"problem": "cut',
        b"[1]",
        b"",
        b'{"problem": "Good too?"}',
        b'{"problem": "half a pair: \\ud83d"}',
    ]
    path = tmp_path / "bad.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + b"\r\n".join(lines) + b"\r\n")
    rows, apart = read(path)
    assert (rows.problem, rows.number) == (["Good?", "Good too?"], [0, 8])
    assert rows.read == 10
    assert [(row, why) for _, row, why in apart] == [
        (1, "malformed_no_problem"),
        (2, "malformed_no_problem"),
        (3, "malformed_enormous"),
        (4, "malformed_utf8"),
        (5, "malformed_json"),
        (6, "malformed_no_problem"),
        (7, "malformed_no_problem"),
        (9, "malformed_utf8"),
    ]


def test_a_missing_column_and_an_empty_folder_are_errors(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["x"]}), tmp_path / "x.parquet")
    with pytest.raises(InputError, match="got the columns text. Name the question's column"):
        read(tmp_path / "x.parquet")
    rows, _ = read(tmp_path / "x.parquet", "text")
    assert rows.problem == ["x"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"no .jsonl, .parquet or .arrow file found"):
        read(tmp_path / "empty")


def test_v1s_form_of_a_benchmark(tmp_path: Path) -> None:
    path = tmp_path / "aime2425_questions.json"
    path.write_text(json.dumps({"2024-I-1": "One?", "2024-I-2": "Two?"}))
    found = read_questions({"aime": path})
    assert [(item.benchmark, item.id, item.text) for item in found] == [
        ("aime", "2024-I-1", "One?"),
        ("aime", "2024-I-2", "Two?"),
    ]
    path.write_text('"a text"')
    with pytest.raises(StageError, match="expected an object of id and question, got str"):
        read_questions({"aime": path})


def test_a_benchmarks_questions_are_those_that_evaluation_reads(tmp_path: Path) -> None:
    from pcl_reasoner.evaluate.benchmark import questions_of

    records = [
        {"ID": "2024-II-4", "Problem": "One?", "Solution": "\\boxed{1}", "Answer": 33},
        {"id": 60, "problem": "Two?", "answer": "2"},
        {"id": None, "Question": "Three?", "answer": 3},
        {"question": "Four?", "answer": "4"},
    ]
    path = tmp_path / "test.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    found = read_questions({"b": path})
    assert [(one.id, one.text, one.answer) for one in found] == [
        ("2024-II-4", "One?", "33"),
        ("60", "Two?", "2"),
        ("test:2", "Three?", "3"),
        ("test:3", "Four?", "4"),
    ]
    evaluated = questions_of("b", str(path), enumerate(records, start=1))
    assert [(one.id, one.problem, one.answer) for one in evaluated] == [
        (one.id, one.text, one.answer) for one in found
    ]
    path.write_text('{"Problem": "Alone?"}\n')
    assert read(path)[0].problem == ["Alone?"]
