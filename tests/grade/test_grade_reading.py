"""Responses and their problems: what does not belong together is an error."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from grade_helpers import RESPONSES, correct, write_responses

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.grade.reading import Responses
from pcl_reasoner.verifiers.kept_checks import KeptChecks

ROWS = [("a", index, correct("1"), "stop", 3) for index in range(4)]


def write(folder: Path, *problems: dict[str, Any]) -> Path:
    folder.mkdir()
    first = {"problem_id": "a", "problem": "1 + 0?", "ground_truth": "1", "kind": "math"}
    rows = [{**first, "checks": "", **changes} for changes in problems]
    pq.write_table(pa.Table.from_pylist(rows), folder / "clean.parquet")
    return folder


def test_equal_rows_of_a_problem_are_one(tmp_path: Path) -> None:
    """As in the stage sample, the first row's text counts."""
    problems = write(tmp_path / "problems", {}, {"problem": "1 + 0? "})
    found = Responses(write_responses(tmp_path / "responses", ROWS), problems)
    assert found.question("a").problem == "1 + 0?"


@pytest.mark.parametrize("change", [{"ground_truth": "2"}, {"kind": "science"}, {"checks": "{}"}])
def test_rows_of_a_problem_that_are_graded_differently(
    tmp_path: Path, change: dict[str, str]
) -> None:
    problems = write(tmp_path / "problems", {}, change)
    responses = write_responses(tmp_path / "responses", ROWS)
    with pytest.raises(StageError, match="problem a occurs twice, with another .* `mix` keep one"):
        Responses(responses, problems, KeptChecks(tmp_path))


def test_checks_are_not_held_in_memory(tmp_path: Path) -> None:
    checks = ['{"tests": "%s"}' % (letter * (4 << 20)) for letter in "abcdé"]
    problems = [{"problem_id": f"p{n}", "checks": text} for n, text in enumerate(checks)]
    folder = write(
        tmp_path / "problems",
        *problems,
        {"problem_id": "m"},
        {"problem_id": "p0", "checks": checks[0]},
    )
    rows = [(f"p{n}", 0, correct("1"), "stop", 3) for n in range(5)]
    responses = write_responses(tmp_path / "responses", rows)
    tracemalloc.start()
    with KeptChecks(tmp_path) as kept:
        found = Responses(responses, folder, kept)
        assert tracemalloc.get_traced_memory()[0] < 2 << 20
        for number in (4, 0, 2):
            assert found.question(f"p{number}").checks == json.loads(checks[number])
        assert found.question("m").checks == {}
    tracemalloc.stop()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["problems", "responses"]


def test_only_responses_that_came_are_counted_and_the_kinds_of_all(tmp_path: Path) -> None:
    problems = [{"problem_id": "a"}, {"problem_id": "c", "kind": "chat"}]
    folder = write(tmp_path / "problems", *problems)
    rows = [("a", 0, "x", "stop", 1), ("a", 1, "", "timeout", 0), ("c", 0, "", "error", 0)]
    found = Responses(write_responses(tmp_path / "responses", rows), folder)
    assert found.count_by(str) == {"math": 1, "chat": 0}
    assert found.methods({"math": "answer", "chat": "rubric"}) == {"answer", "rubric"}


def test_an_unknown_kind_names_the_nearest_and_what_to_do(tmp_path: Path) -> None:
    problems = write(tmp_path / "problems", {"kind": "maths"})
    found = Responses(write_responses(tmp_path / "responses", ROWS), problems)
    with pytest.raises(StageError, match="kind 'maths', .* 'math'. Convert its source again"):
        found.question("a")


def test_files_without_rows(tmp_path: Path) -> None:
    """A stage that drops all responses of a file leaves it without row groups."""
    problems = write(tmp_path / "problems", {})
    folder = write_responses(tmp_path / "responses", ROWS)
    pq.ParquetWriter(folder / "responses" / "none.parquet", RESPONSES).close()
    found = Responses(folder, problems)
    read = [record for batch in found.with_questions() for record, _ in batch]
    assert len(read) == found.total == 4
    for file in (folder / "responses").glob("part-*"):
        file.unlink()
    with pytest.raises(StageError, match="responses: no response in it"):
        Responses(folder, problems)
