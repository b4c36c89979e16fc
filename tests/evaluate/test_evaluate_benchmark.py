"""Benchmarks as they are found: in our form, in those of the hub, and under shipped names."""

from __future__ import annotations

import base64
import json
import os
import pickle
import subprocess
import sys
import tracemalloc
import zlib
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hub_server import COMMIT, HubServer

from pcl_reasoner.contamination import fingerprints
from pcl_reasoner.core.errors import InputError, StageError
from pcl_reasoner.evaluate.benchmark import (
    check_shipped,
    first_questions,
    questions_of,
    read_benchmark,
)
from pcl_reasoner.evaluate.checkpoints import benchmark_files
from pcl_reasoner.formats.records import Dates
from pcl_reasoner.synthetic.base_model import write_model_folder
from pcl_reasoner.verifiers.kept_checks import KeptChecks

TEXTS = [
    f"A farmer has {i} {kind} and sells some of them on a {day}; how many are left in the end?"
    for i, (kind, day) in enumerate(
        (kind, day)
        for kind in ("cows", "hens", "goats", "pigs", "sheep")
        for day in ("Monday", "Friday")
    )
]
QUESTIONS = [{"id": f"q{i}", "problem": text, "answer": i} for i, text in enumerate(TEXTS)]


def lines(records: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"id": "a", "problem": "P?", "answer": "7"}, ("a", "P?", "7")),
        ({"question": "P?", "answer": 70}, ("f:4", "P?", "70")),
        (
            {"id": 60, "problem": "P?", "solution": "so \\boxed{1}, \\boxed{204}"},
            ("60", "P?", "204"),
        ),
        ({"id": 60, "problem": "P?", "solution": "\\boxed{1}", "answer": "2"}, ("60", "P?", "2")),
        (
            {"ID": "2024-II-4", "Problem": "P?", "Solution": "\\boxed{1}", "Answer": 33},
            ("2024-II-4", "P?", "33"),
        ),
    ],
)
def test_the_forms_of_the_hubs_sets(record: dict[str, Any], expected: tuple[str, str, str]) -> None:
    (question,) = questions_of("b", "f.jsonl", [(5, record)])
    assert (question.id, question.problem, question.answer) == expected


TESTS = {"tests": {"format": "stdin", "cases": [{"input": "3", "output": "6"}]}}
CODED = json.dumps(TESTS)
TOLD = {"instructions": [{"id": "punctuation:no_comma"}]}


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"id": "a", "problem": "P?", "answer": "7"}, ("7", "math", "")),
        (
            {"id": "a", "problem": "P?", "answer": 7, "kind": None, "checks": None},
            ("7", "math", ""),
        ),
        ({"id": "a", "problem": "P?", "answer": "7", "kind": "science"}, ("7", "science", "")),
        ({"id": "a", "problem": "P?", "kind": "code", "checks": TESTS}, ("", "code", CODED)),
        (
            {"id": "a", "problem": "P?", "kind": "code", "checks": CODED, "answer": 7},
            ("7", "code", CODED),
        ),
        # Without a kind, the checks say it.
        ({"id": "a", "problem": "P?", "checks": TESTS}, ("", "code", CODED)),
        ({"id": "a", "problem": "P?", "checks": TOLD}, ("", "instruction", json.dumps(TOLD))),
    ],
)
def test_kind_and_checks(record: dict[str, Any], expected: tuple[str, str, str]) -> None:
    (question,) = questions_of("b", "f.jsonl", [(1, record)])
    assert (question.answer, question.kind, question.checks) == expected


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ({"kind": "poetry"}, "kind must be one of math, code, .*; got 'poetry'"),
        ({"kind": ["code"]}, "kind must be one of"),
        ({"checks": "{"}, "f.jsonl, record 1, checks: not JSON"),
        ({"checks": []}, r"checks must be an object with tests or instructions, got '\[\]'"),
        ({"checks": {"test": []}}, "checks must be an object with tests or instructions"),
        ({"kind": "code"}, "problem b/a .f.jsonl, record 1. has the kind code and has no tests"),
        ({"kind": "code", "checks": TOLD}, "has the kind code and has no tests"),
        ({"kind": "code", "checks": "", "answer": "7"}, "has the kind code and has no tests"),
        ({"kind": "instruction"}, "problem b/a .*instructions: got None, expected a list"),
        ({"kind": "instruction", "checks": TESTS}, "instructions: got None, expected a list"),
        ({"kind": "chat", "answer": "7"}, "has the kind 'chat', expected one of math, science"),
        ({"kind": "math", "checks": TESTS}, "answer must be text or a number, got None"),
        ({"checks": {"tests": {"format": "stdin", "cases": []}}}, "has unreadable tests: cases"),
    ],
)
def test_wrong_kind_and_checks(others: dict[str, Any], message: str) -> None:
    with pytest.raises(StageError, match=message):
        questions_of("b", "f.jsonl", [(1, {"id": "a", "problem": "P?", **others})])


def livecodebench(number: int, **others: Any) -> dict[str, Any]:
    """One line of test.jsonl, with 1 public and 40 private tests."""
    private = [{"input": f"{i}\n", "output": "x", "testtype": "stdin"} for i in range(40)]
    packed = base64.b64encode(zlib.compress(pickle.dumps(json.dumps(private)))).decode()
    return {
        "question_id": f"made_up_{number}",
        "question_content": TEXTS[number],
        "platform": "atcoder",
        "starter_code": "",
        "public_test_cases": '[{"input": "p", "output": "x", "testtype": "stdin"}]',
        "private_test_cases": packed,
        "metadata": "{}",
        **others,
    }


def test_livecodebench_has_all_of_its_tests(tmp_path: Path) -> None:
    (tmp_path / "test.jsonl").write_text(lines([livecodebench(0), livecodebench(1)]))
    (tmp_path / "test2.jsonl").write_text(lines([livecodebench(2)]))
    with KeptChecks(tmp_path) as kept:
        found = read_benchmark("lcb", tmp_path, kept).questions
        assert [(one.id, one.problem, one.answer, one.kind) for one in found] == [
            (f"made_up_{i}", TEXTS[i], "", "code") for i in range(3)
        ]
        cases = json.loads(kept.of("lcb/made_up_0"))["tests"]["cases"]
    assert [case["input"] for case in cases] == ["p", *(f"{i}\n" for i in range(40))]


def test_only_contests_of_some_days_are_asked(tmp_path: Path) -> None:
    days = ["2024-09-30T00:00:00", "2024-10-01T00:00:00", "2025-01-31T00:00:00"]
    records = [livecodebench(i, contest_date=day) for i, day in enumerate(days)]
    (tmp_path / "test.jsonl").write_text(lines(records[:1]))  # all of an early file are outside
    (tmp_path / "test2.jsonl").write_text(lines(records[1:]))
    with KeptChecks(tmp_path) as kept:
        since = read_benchmark("lcb", tmp_path, kept, Dates(date(2024, 10, 1)))
        both = read_benchmark("lcb", tmp_path, kept, Dates(date(2024, 10, 1), date(2025, 1, 1)))
        assert [one.id for one in since.questions] == ["made_up_1", "made_up_2"]
        assert [one.id for one in both.questions] == ["made_up_1"]
        assert (since.outside_dates, both.outside_dates) == (1, 2)
        with pytest.raises(StageError, match="all 3 questions are of contests on other days"):
            read_benchmark("lcb", tmp_path, kept, Dates(date(2026, 1, 1)))
        (tmp_path / "test3.jsonl").write_text(lines([livecodebench(3)]))
        with pytest.raises(StageError, match="test3.jsonl, record 1: malformed_metadata .contest_"):
            read_benchmark("lcb", tmp_path, kept, Dates(date(2024, 10, 1)))


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_the_tests_of_a_benchmark_are_not_held_in_memory(tmp_path: Path, suffix: str) -> None:
    records = []
    for number in range(5):
        cases = [{"input": f"{number}\n", "output": "x" * (4 << 20)}]
        checks = json.dumps({"tests": {"format": "stdin", "cases": cases}})
        records.append({"id": str(number), "problem": "P?", "checks": checks})
    file = tmp_path / f"b.{suffix}"
    if suffix == "jsonl":
        file.write_text(lines(records))
    else:
        pq.write_table(pa.Table.from_pylist(records), file, row_group_size=1)
    tracemalloc.start()
    with KeptChecks(tmp_path) as kept:
        found = read_benchmark("b", file, kept)
        now, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        # 20 MiB in all; one question and its copies at a time.
        assert now < 2 << 20 and (peak < 30 << 20 or suffix == "parquet")
        assert [one.checks for one in found.questions] == [""] * 5
        assert kept.of("b/3") == records[3]["checks"]
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


def test_livecodebench_with_a_question_that_cannot_be_read(tmp_path: Path) -> None:
    """Leaving it out would change the score."""
    packed = base64.b64encode(zlib.compress(pickle.dumps(["[]"]))).decode()
    bad = livecodebench(1, private_test_cases=packed)
    (tmp_path / "test.jsonl").write_text(lines([livecodebench(0), bad]))
    message = r"test\.jsonl, record 2: malformed_tests \(pickle with opcode EMPTY_LIST at byte"
    with pytest.raises(StageError, match=message):
        read_benchmark("lcb", tmp_path, KeptChecks(tmp_path))
    bad = livecodebench(1, public_test_cases="", private_test_cases="")
    (tmp_path / "test.jsonl").write_text(lines([bad]))
    with pytest.raises(StageError, match=r"record 1: no_tests\. Fetch the file again"):
        read_benchmark("lcb", tmp_path, KeptChecks(tmp_path))


def test_a_solution_without_a_box_is_no_answer() -> None:
    with pytest.raises(StageError, match="answer must be text or a number, got None"):
        questions_of("b", "f", [(1, {"problem": "P?", "solution": "it is 204"})])


def test_a_folder_is_read_with_its_subfolders_and_an_id_stands_once(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / ".cache").mkdir()
    pq.write_table(pa.Table.from_pylist(QUESTIONS[:2]), tmp_path / "data" / "a.parquet")
    (tmp_path / "quarantined.jsonl").write_text("{}")
    (tmp_path / ".cache" / "x.jsonl").write_text("{}")
    nameless = [{"question": one["problem"], "answer": 1} for one in QUESTIONS]
    (tmp_path / "I.jsonl").write_text(lines(nameless[2:4]))
    (tmp_path / "II.jsonl").write_text(lines(nameless[4:5]))
    with KeptChecks(tmp_path) as kept:
        ids = [question.id for question in read_benchmark("b", tmp_path, kept).questions]
        assert ids == ["I:0", "I:1", "II:0", "q0", "q1"]
        (tmp_path / "III.jsonl").write_text(lines(QUESTIONS[:1]))
        with pytest.raises(StageError, match="id 'q0' occurs in two of its files.*files: '"):
            read_benchmark("b", tmp_path, kept)


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fingerprints of our ten questions under a name."""
    settings = fingerprints.Settings(256, 8, True)
    asked = [fingerprints.Question("ten", f"s{i}", text) for i, text in enumerate(TEXTS)]
    found = fingerprints.make(asked, settings, None)
    head = {"format": 3, "benchmark": "ten", "embedder": {}, **vars(settings)}
    questions = [
        {
            "id": one.id,
            "year": None,
            "answer": None,
            "text": f"{one.grams.text_hash:016x}",
            "grams": fingerprints._pack(np.array(sorted(one.grams.grams), "<u8")),
            **{
                name: fingerprints._pack(fingerprints._terms(terms))
                for name, terms in one.signature.terms.items()
            },
        }
        for one in found
    ]
    (tmp_path / "shipped").mkdir()
    (tmp_path / "shipped" / "ten.json").write_text(json.dumps({**head, "questions": questions}))
    monkeypatch.setattr(fingerprints, "SHIPPED", tmp_path / "shipped")


def checked(name: str, texts: list[str]) -> list[str]:
    records = [{"id": str(i), "problem": text, "answer": 1} for i, text in enumerate(texts)]
    return check_shipped(name, questions_of(name, "f", list(enumerate(records, 1))))


@pytest.mark.usefixtures("shipped")
def test_a_benchmark_under_a_shipped_name_must_be_that_one() -> None:
    assert checked("ten", TEXTS[::-1]) == []
    # Numbers do not count; half of the 8-grams do.
    assert checked("ten", [text.replace("in the end", "at last") for text in TEXTS]) == []
    # One of ten may be told in other words; a second may not, and none may be left out or added.
    assert checked("ten", [*TEXTS[:9], "Of ten sheep, how many?"]) == ["9"]
    with pytest.raises(StageError, match="has 10 questions; 8 match a question of the shipped ten"):
        checked("ten", [*TEXTS[:8], "Of ten sheep, how many?", "Of two pigs?"])
    with pytest.raises(StageError, match="has 9 questions; 9 .* which has 10"):
        checked("ten", TEXTS[:9])
    with pytest.raises(StageError, match="has 11 questions"):
        checked("ten", [*TEXTS, "Of ten sheep, how many?"])
    # Ten times the same is like the five of its day, and stands for each of them once.
    with pytest.raises(StageError, match="; 5 match a question of the shipped ten"):
        checked("ten", [TEXTS[0]] * 10)
    assert checked("other", TEXTS[:3]) == []


def test_the_shipped_fingerprints_have_the_settings_that_are_compared_with() -> None:
    for name in ("aime24", "aime25"):
        with pytest.raises(StageError, match="; 0 match a question of .*, which has 30 "):
            checked(name, TEXTS)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubServer]:
    pq.write_table(pa.Table.from_pylist(QUESTIONS[:3]), tmp_path / "b.parquet")
    files = {"README.md": b"# x", "data/test-0.parquet": (tmp_path / "b.parquet").read_bytes()}
    files["other.jsonl"] = lines(QUESTIONS[3:5]).encode()
    one = HubServer("someone/exam", "v1", files)
    yield one
    one.stop()


def pclr_ms(folder: Path, hub: HubServer, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(Path(sys.executable).with_name("pclr-ms")), *words],
        cwd=folder,
        env={**os.environ, "HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0", "HF_HOME": str(folder)},
        capture_output=True,
        text=True,
    )


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    write_model_folder(folder, TEXTS, vocab_size=270, hidden=32, layers=1, seed=0)
    return folder


def test_a_benchmark_of_the_hub_on_the_command_line(
    hub: HubServer, model: Path, tmp_path: Path
) -> None:
    words = ["eval", str(model), "--benchmark", "exam=hub:someone/exam@v1:data/*.parquet", "-n"]
    words += ["1", "--set", "max_new_tokens=2", "--set", "max_model_len=128"]
    done = pclr_ms(tmp_path, hub, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    (scores,) = json.loads((tmp_path / "evaluated" / "scores.json").read_text())["scores"]
    assert (scores["benchmark"], scores["problems"]) == ("exam", 3)
    # Only what was asked for was fetched, at the commit that the revision is.
    fetched = [path for path in hub.asked if path.startswith("GET /datasets")]
    assert fetched == [f"GET /datasets/someone/exam/resolve/{COMMIT}/data/test-0.parquet"]
    hub.asked.clear()
    done = pclr_ms(tmp_path, hub, *words)
    assert (done.returncode, hub.asked) == (0, [])


def test_a_benchmark_of_the_hub_in_a_recipe(hub: HubServer, model: Path, tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(
        f"sources:\n  model: {{path: {model}, kind: model}}\n"
        "  exam: {hub: someone/exam, revision: v1}\n"
        "stages:\n  evaluate: {n: 1, max_new_tokens: 2, max_model_len: 128, "
        "inputs: {model: model, benchmark: [exam]}}\n"
    )
    done = pclr_ms(tmp_path, hub, "run", "r.yaml", "--profile", "paper")
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = (tmp_path / "runs" / "r").glob("evaluate-*")
    ids = [json.loads(line)["id"] for line in (folder / "generations.jsonl").open()]
    assert ids == ["q0", "q1", "q2", "q3", "q4"]


def test_what_the_hub_does_not_have_is_said(hub: HubServer, model: Path, tmp_path: Path) -> None:
    done = pclr_ms(tmp_path, hub, "eval", str(model), "--benchmark", "hub:someone/exam@v2")
    assert done.returncode == 1
    assert "someone/exam at v2 could not be fetched" in done.stderr
    for word in ("hub:exam@v1", "a=hub:someone/exam"):
        with pytest.raises(InputError, match="is hub:OWNER/NAME@REVISION"):
            benchmark_files([word], tmp_path)


GOOD = '{"problem": "P?", "answer": "2"}'


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (GOOD.encode("utf-16"), "line 1: not UTF-8"),
        (GOOD.encode("utf-16-le"), "line 1: not JSON"),
        (rb'{"problem": "\ud800?", "answer": "2"}', "record 1: has half of a character"),
        (rb'{"problem": "P?", "answer": "\ud800"}', "record 1: has half of a character"),
        (b"[" * 100_000, "line 1: nested too deeply"),
        (b'{"problem": "P?", "answer": ' + b"1" * 5000 + b"}", "line 1: not JSON"),
        (b'{"problem": "P?", "answer": NaN}', "record 1: answer must be text or a number, got nan"),
        (b'{"problem": "P?", "answer": -Infinity}', "record 1: answer must be .*, got -inf"),
    ],
)
def test_a_line_that_cannot_be_a_question_is_named(
    tmp_path: Path, line: bytes, message: str
) -> None:
    file = tmp_path / "odd.jsonl"
    file.write_bytes(line + b"\n")
    with pytest.raises(StageError, match=f"odd.jsonl, {message}"):
        first_questions(file)
