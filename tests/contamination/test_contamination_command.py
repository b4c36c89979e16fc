"""The command as a user calls it: exit codes, evidence, a reviewer's word, bad input."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pcl_reasoner.curate import problem_id

ROOT = Path(__file__).parents[2]
GRID = (
    "A token starts in the lower left corner of a grid with 6 rows and 8 columns and moves only "
    "right or up. In how many ways can it reach the upper right corner with exactly 4 turns?"
)
CLEAN = "The angles of a triangle are in arithmetic progression. Find the middle angle."


@pytest.fixture
def files(tmp_path: Path) -> Path:
    rows = [CLEAN, GRID.replace("6", "7"), None, GRID]
    lines = [json.dumps({"problem": row}) + "\n" for row in rows]
    (tmp_path / "data.jsonl").write_text("".join(lines))
    (tmp_path / "clean.jsonl").write_text(lines[0])
    (tmp_path / "mine.jsonl").write_text(json.dumps({"id": "grid", "problem": GRID}) + "\n")
    return tmp_path


def call(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pcl_reasoner.cli", "contamination", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(folder / "cache")},
        capture_output=True,
        text=True,
    )


def check(folder: Path, data: str, *words: str) -> subprocess.CompletedProcess[str]:
    return call(folder, "check", data, "--against", "mine.jsonl", "--no-embedding", *words)


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_found_is_3_and_clean_is_0(files: Path) -> None:
    answer = check(files, "data.jsonl")
    assert answer.returncode == 3, answer.stderr
    assert "1 of 4 rows kept; contaminated 2, malformed_no_problem 1" in answer.stdout
    folder = files / "data.jsonl.contamination"
    assert [(hit["row"], hit["benchmark_id"]) for hit in lines(folder / "hits.jsonl")] == [
        (1, "grid"),
        (3, "grid"),
    ]
    assert lines(folder / "quarantined.jsonl")[0]["row"] == 2
    assert "<mark>7</mark>" in (folder / "evidence.html").read_text()
    answer = check(files, "clean.jsonl", "--output", "out")
    assert (answer.returncode, answer.stderr) == (0, "")
    assert "clean: nothing found, of 1 questions compared with" in answer.stdout
    assert not (files / "out.partial").exists()


def test_a_reviewers_word_is_obeyed(files: Path) -> None:
    check(files, "data.jsonl", "--output", "first")
    review = files / "first" / "review.jsonl"
    records = lines(review)
    assert {record["decision"] for record in records} == {""}
    words = {problem_id(GRID): "allow", problem_id(CLEAN): "deny"}
    for record in records:
        record["decision"] = words.get(str(record["problem_id"]), "")
    mine = files / "reviewed.jsonl"
    mine.write_text("".join(json.dumps(record) + "\n" for record in records))
    answer = check(files, "data.jsonl", "--review", str(mine), "--output", "second")
    assert answer.returncode == 3
    assert "1 of 4 rows kept; contaminated 1, denied 1, malformed_no_problem 1" in answer.stdout
    assert json.loads((files / "second" / "summary.json").read_text())["review"] == {
        "allow": 1,
        "deny": 1,
        "not_here": 0,
    }


def test_what_did_not_happen_is_never_clean(files: Path) -> None:
    (files / "kept").mkdir()
    for words, message in (
        (("data.jsonl", "--output", "kept"), "no earlier check made it"),
        (("data.jsonl", "--field", "text"), "none of its 4 rows has a question in text"),
        (("data.jsonl", "--threshold", "1.5"), "threshold: Input should be less than or equal"),
        (("data.jsonl", "--against", "aime99"), "neither a file nor one of the shipped"),
        (("data.jsonl", "--no-ngrams", "--no-signature"), "nothing would be compared"),
        (("absent.jsonl",), "no .jsonl, .parquet or .arrow file found"),
    ):
        answer = check(files, *words)
        assert answer.returncode in (1, 2), words
        assert message in answer.stderr, (words, answer.stderr)
    assert list((files / "kept").iterdir()) == []


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.parquet", b"PAR1 and no more", "a.parquet: not a complete Parquet file"),
        ("a.arrow", b"no Arrow", "a.arrow: not a complete Arrow file"),
    ],
)
def test_damaged_data_are_one_sentence(
    files: Path, name: str, content: bytes, message: str
) -> None:
    (files / name).write_bytes(content)
    answer = check(files, name, "--output", "out")
    assert answer.returncode == 1
    assert message in answer.stderr and "Traceback" not in answer.stderr
    assert not (files / "out.partial").exists()


def test_a_damaged_benchmark_or_review_is_one_sentence(files: Path) -> None:
    (files / "b.jsonl").write_bytes(b'{"id": "a", "problem": "\xff"}\n')
    (files / "b.parquet").write_bytes(b"")
    (files / "b.json").write_bytes(b"[" * 100_000)
    for name, message in (
        ("b.jsonl", "b.jsonl, line 1: not UTF-8"),
        ("b.parquet", "b.parquet: not a complete Parquet file"),
        ("b.json", "b.json: nested too deeply"),
    ):
        answer = call(files, "check", "clean.jsonl", "--against", name, "--no-embedding")
        assert answer.returncode == 1, answer.stderr
        assert message in answer.stderr and "Traceback" not in answer.stderr
    answer = check(files, "clean.jsonl", "--review", "b.jsonl", "--output", "out")
    assert answer.returncode == 2
    assert "b.jsonl, line 1: not UTF-8" in answer.stderr
    assert not (files / "out.partial").exists()


def test_rows_of_a_table_that_are_not_utf_8_are_refused_like_lines(files: Path) -> None:
    texts = pa.array([CLEAN.encode(), b"Find \xff.", CLEAN.encode()], pa.binary())
    wrong = pa.Array.from_buffers(pa.string(), 3, texts.buffers())
    pq.write_table(pa.table({"problem": wrong}), files / "a.parquet")
    answer = check(files, "a.parquet", "--output", "out")
    assert "2 of 3 rows kept; malformed_utf8 1" in answer.stdout, answer.stderr
    assert lines(files / "out" / "quarantined.jsonl")[0]["row"] == 1


def test_a_part_that_is_missing_is_an_error(files: Path) -> None:
    (files / "parts").mkdir()
    for number in (0, 2):
        part = files / "parts" / f"train-0000{number}-of-00003.jsonl"
        part.write_bytes((files / "clean.jsonl").read_bytes())
    answer = check(files, "parts", "--output", "out")
    assert answer.returncode == 2
    assert "train-00001-of-00003.jsonl: missing" in answer.stderr
