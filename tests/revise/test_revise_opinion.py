"""How replies and recorded opinions are read."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from grade_helpers import write_responses

from pcl_reasoner.core.errors import InputError
from pcl_reasoner.revise.opinion import Opinion, read_opinions, read_reply


@pytest.mark.parametrize(
    ("reply", "finish_reason", "answer"),
    [
        ("<think>\\boxed{1}</think>It is \\boxed{2}.", "stop", "2"),
        ("It is \\boxed{1}, no: \\boxed{2}.", "stop", "2"),  # the server removed the think part
        ("<think>\\boxed{1}", "length", None),
        ("so \\boxed{1}, but perhaps", "length", None),  # may be a think part
        ("<think>x</think>\\boxed{2} because", "length", "2"),
        ("x</think>\\boxed{2}", "stop", "2"),  # the template opened the think part
        ("The answer is 2.", "stop", None),
        ("\\boxed{}", "stop", None),
        ("\\boxed{2}", "error", None),
        ("\\boxed{2}", "timeout", None),
        ("", "stop", None),
    ],
)
def test_replies(reply: str, finish_reason: str, answer: str | None) -> None:
    assert read_reply(reply, finish_reason) == answer


def lines(file: Path, *records: object) -> Path:
    texts = (one if isinstance(one, str) else json.dumps(one) for one in records)
    file.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return file


def test_lines_with_an_answer_or_a_response(tmp_path: Path) -> None:
    file = lines(
        tmp_path / "opinions.jsonl",
        {"problem_id": "a", "answer": "\\frac{1}{2}"},
        {"problem_id": "b", "answer": 8},
        {"problem_id": "c", "answer": "\\boxed{9}"},
        "",
        {"problem_id": "d", "response": "<think>x</think>\\boxed{7}", "finish_reason": "stop"},
        {"problem_id": "e", "response": "\\boxed{7} and", "finish_reason": "length"},
        {"problem_id": "f", "answer": None},
        {"problem_id": "g", "answer": " "},
        {"problem_id": "h", "answer": "}{"},
        {"problem_id": "not wanted", "answer": "1"},
        {"problem_id": "i", "answer": "x\ud800"},
    )
    found = read_opinions(file, "abcdefghi")
    assert {name: one.answer for name, one in found.items()} == {
        "a": "\\frac{1}{2}",
        "b": "8",
        "c": "9",
        "d": "7",
        "e": None,
        "f": None,
        "g": None,
        "h": None,
        "i": "x?",
    }
    assert found["d"] == Opinion("7", "<think>x</think>\\boxed{7}", asked=0)


def test_of_several_opinions_the_first_readable_one_counts(tmp_path: Path) -> None:
    file = lines(
        tmp_path / "opinions.jsonl",
        {"problem_id": "a", "answer": None},
        {"problem_id": "a", "answer": "2"},
        {"problem_id": "a", "answer": "3"},
    )
    assert read_opinions(file, "a")["a"].answer == "2"


def test_the_artifact_of_another_models_sample(tmp_path: Path) -> None:
    rows = [
        ("a", 2, "<think>x</think>\\boxed{3}", "stop", 4),
        ("a", 1, "<think>x</think>\\boxed{2}", "stop", 4),
        ("a", 0, "<think>x", "length", 4),
        ("b", 0, "", "error", 0),
        ("c", 0, "<think>x</think>\\boxed{5}", "stop", 4),
    ]
    found = read_opinions(write_responses(tmp_path / "sample", rows), {"a", "b"})
    assert {name: one.answer for name, one in found.items()} == {"a": "2", "b": None}


def test_a_parquet_file_in_a_folder(tmp_path: Path) -> None:
    table = pa.table({"problem_id": ["a"], "answer": ["4"], "other": [1]})
    pq.write_table(table, tmp_path / "opinions.parquet")
    (tmp_path / "manifest.json").write_text("{}")
    (tmp_path / "quarantined.jsonl").write_text("")
    assert read_opinions(tmp_path, {"a"})["a"].answer == "4"


def test_malformed_opinions_name_their_place(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    good = {"problem_id": "a", "answer": "1"}
    for bad, said in (
        ("{", "line 2: not JSON"),
        ([1], "line 2: expected an object"),
        ({"id": "a", "answer": "1"}, "line 2: expected problem_id .* got the keys id, answer"),
        ({"problem_id": "a", "text": "1"}, "line 2: expected problem_id .* answer or response"),
        ({"problem_id": "a", "answer": ["1"]}, r"line 2: expected a text .* got \['1'\]"),
        ({"problem_id": "a", "answer": True}, "line 2: expected a text .* got True"),
        ({**good, "sample_index": "x"}, "line 2: expected a whole number as sample_index, got 'x'"),
        ({**good, "sample_index": 0.5}, "line 2: expected a whole number as sample_index, got 0.5"),
        ("[" * 100_000, "line 2: nested too deeply"),
    ):
        with pytest.raises(InputError, match=said):
            read_opinions(lines(file, good, bad), {"a"})
    (tmp_path / "latin").write_bytes('{"problem_id": "é"}'.encode("latin-1"))
    with pytest.raises(InputError, match="latin, line 1: not UTF-8 .* Correct the line"):
        read_opinions(tmp_path / "latin", {"a"})
    pq.write_table(pa.table({"problem_id": ["a"], "text": ["4"]}), tmp_path / "x.parquet")
    with pytest.raises(InputError, match="row 0: expected problem_id"):
        read_opinions(tmp_path / "x.parquet", {"a"})
    with pytest.raises(InputError, match=r"got x.jsonl, x.parquet. Name the file itself"):
        read_opinions(tmp_path, {"a"})
