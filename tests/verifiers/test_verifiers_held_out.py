"""Held-out problems: every bad line is named before training."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.verifiers.held_out import read_problems

GOOD = {"id": "a", "problem": "1 + 1?", "answer": "2"}


def line(**changes: object) -> str:
    return json.dumps({**GOOD, "id": "b", **changes})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"id": "b", "problem": ', r"held_out.jsonl, line 3: not JSON .*Correct the line"),
        ("[1, 2]", "line 3: got list, expected an object with id, problem and answer"),
        (line(kind="code", checks="{broken"), "line 3, checks: not JSON"),
        (line(kind="code", checks="[]"), "line 3, checks: not JSON|line 3.* got list|no tests"),
        (line(id="a"), "line 3: the id a occurs twice, first in .*held_out.jsonl, line 1"),
        (line(answer=""), "line 3: no answer or ground_truth; it has id, problem, answer"),
        (line(answer="", kind="science"), "line 3: no answer or ground_truth"),
        (line(kind="poetry"), "line 3.* has the kind 'poetry', expected one of math"),
    ],
)
@pytest.mark.parametrize("with_models", [False, True])
def test_a_bad_line_is_named(tmp_path: Path, text: str, words: str, with_models: bool) -> None:
    file = tmp_path / "held_out.jsonl"
    file.write_text(f"{json.dumps(GOOD)}\n\n{text}\n")
    with pytest.raises(StageError, match=words):
        read_problems(file, 10, with_models)
    # Lines after the limit are not read as problems.
    assert read_problems(file, 1, with_models) == [GOOD]


def test_chat_needs_no_answer_where_a_model_can_grade_it(tmp_path: Path) -> None:
    file = tmp_path / "held_out.jsonl"
    file.write_text(line(kind="chat", answer="") + "\n")
    assert read_problems(file, 1, True)[0]["kind"] == "chat"
    with pytest.raises(StageError, match="line 1: no answer"):
        read_problems(file, 1)


@pytest.mark.parametrize("content", [b"", b"\n\n"])
def test_a_file_without_problems_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "held_out.jsonl"
    file.write_bytes(content)
    with pytest.raises(StageError, match="held_out.jsonl: no problems. Give held-out problems"):
        read_problems(file, 5)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "held_out.jsonl"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(StageError, match="held_out.jsonl, line 1: not UTF-8"):
        read_problems(file, 5)


def test_an_empty_table_is_refused(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([("problem_id", pa.string()), ("problem", pa.string())])
    pq.write_table(schema.empty_table(), tmp_path / "clean.parquet")
    with pytest.raises(StageError, match="no problems. Give held-out problems"):
        read_problems(tmp_path, 5)
