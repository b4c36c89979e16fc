"""Several sets of problems become one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.stage import Counts, StageContext
from pcl_reasoner.curate.mix import MixConfig, mix


def problems(folder: Path, names: list[str], kind: str, file: str = "clean", **more: Any) -> Path:
    folder.mkdir()
    rows = [{"problem_id": name, "problem": f"text {name}", "kind": kind, **more} for name in names]
    pq.write_table(pa.Table.from_pylist(rows), folder / f"{file}.parquet")
    return folder


def run(tmp_path: Path, inputs: dict[str, Path], **keys: Any) -> tuple[Counts, Any, StageContext]:
    output = tmp_path / f"out{len(list(tmp_path.glob('out*')))}"
    output.mkdir()
    context = StageContext("mix", output / "quarantined.jsonl")
    counts = mix(MixConfig(**keys), inputs, output, context)
    return counts, pq.read_table(output / "clean.parquet"), context


def test_a_number_of_each_kind_the_same_for_the_same_seed(tmp_path: Path) -> None:
    math = problems(tmp_path / "math", [f"m{i}" for i in range(10)], "math")
    chat = problems(tmp_path / "chat", [f"c{i}" for i in range(9)], "chat", "problems", extra="x")
    inputs = {"problems.math": math, "problems.chat": chat}
    counts, table, context = run(tmp_path, inputs, take={"chat": 4})
    names = table["problem_id"].to_pylist()
    assert names[:10] == [f"m{i}" for i in range(10)]
    assert len(names) == 14
    assert table.schema.names == ["problem_id", "problem", "kind"]
    assert (counts.read, counts.kept, counts.dropped) == (19, 14, {"not_taken": 5})
    assert counts.info["kinds"] == {"chat": 4, "math": 10}
    assert context.warnings == [
        "left out: extra. A column is kept if all inputs have it with one type."
    ]
    assert run(tmp_path, inputs, take={"chat": 4})[1] == table
    others = {
        tuple(run(tmp_path, inputs, take={"chat": 4}, seed=seed)[1]["problem_id"].to_pylist())
        for seed in range(5)
    }
    assert len(others) > 2
    # A larger number keeps those of the smaller one.
    more = run(tmp_path, inputs, take={"chat": 6})[1]["problem_id"].to_pylist()
    assert set(names) < set(more)


def test_a_problem_of_two_sets_is_taken_once(tmp_path: Path) -> None:
    one = problems(tmp_path / "one", ["a", "b"], "math")
    two = problems(tmp_path / "two", ["b", "c"], "code")
    counts, table, _ = run(tmp_path, {"problems.one": one, "problems.two": two})
    assert table["problem_id"].to_pylist() == ["a", "b", "c"]
    assert table["kind"].to_pylist() == ["math", "math", "code"]
    assert (counts.read, counts.dropped) == (4, {"repeated_problem": 1})


def test_kind_and_checks_are_kept_if_one_input_has_them(tmp_path: Path) -> None:
    tests = '{"tests": {"format": "assert", "cases": ["assert f(1) == 2"]}}'
    old = problems(tmp_path / "old", ["a", "b"], "", rate=0.5)
    rows = pq.read_table(old / "clean.parquet").drop_columns(["kind"])
    pq.write_table(rows, old / "clean.parquet")
    new = problems(tmp_path / "new", ["b", "c"], "code", checks=tests, rate=1)
    for inputs in ({"problems.1": old, "problems.2": new}, {"problems.1": new, "problems.2": old}):
        counts, table, context = run(tmp_path, inputs)
        found = {row.pop("problem_id"): row for row in table.to_pylist()}
        code = {"kind": "code", "checks": tests}
        math = {"kind": "math", "checks": ""}
        twice = math if inputs["problems.1"] == old else code
        assert found == {
            "a": {"problem": "text a", **math},
            "b": {"problem": "text b", **twice},
            "c": {"problem": "text c", **code},
        }
        kinds = {
            kind: [one["kind"] for one in found.values()].count(kind) for kind in ("code", "math")
        }
        assert counts.info["kinds"] == kinds
        # One input has whole numbers in it, the other has others.
        assert [warning.split(".")[0] for warning in context.warnings] == ["left out: rate"]


def test_a_number_of_problems_is_not_negative() -> None:
    with pytest.raises(ValidationError, match="take.chat"):
        MixConfig(take={"chat": -1})


def test_too_few_are_said_and_none_is_an_error(tmp_path: Path) -> None:
    one = problems(tmp_path / "one", ["a", "b"], "chat")
    _, table, context = run(tmp_path, {"problems": one}, take={"chat": 5})
    assert table.num_rows == 2
    assert context.warnings == ["take: 5 problems of kind chat, but there are 2."]
    with pytest.raises(StageError, match=r"one/clean.parquet: no problem is taken of 2\. Raise"):
        run(tmp_path, {"problems": one}, take={"chat": 0})
    (tmp_path / "empty").mkdir()
    with pytest.raises(StageError, match="no clean.parquet and no problems.parquet"):
        run(tmp_path, {"problems": tmp_path / "empty"})
