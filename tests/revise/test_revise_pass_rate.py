"""The stage pass_rate, by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError
from revise_helpers import row, write_problem_rows

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.stage import Counts, StageContext
from pcl_reasoner.revise.pass_rate import (
    PassRateConfig,
    drop_reason,
    histogram,
    pass_rate,
    read_rates,
)

REWARDS = {"correct": 1.0, "passed_some": 0.5}

VERDICTS = {
    "half": ["correct", "incorrect", "no_box", "correct"],
    "third": ["correct", "unfinished", "incorrect"],
    "never": ["incorrect", "no_box", "unfinished"],
    "always": ["correct", "correct"],
    "once": ["correct", "timeout", "error", "incorrect"],  # 1 of 2: two say nothing
    "lost": ["timeout", "error"],
    "only": ["error", "correct"],  # 1 of 1
    "code": ["passed_some", "incorrect"],  # a mean reward of 0.25
    "chat": ["correct", "correct"],
    "gone": ["correct"],
}


def write_verdicts(folder: Path, verdicts: dict[str, list[str]]) -> Path:
    folder.mkdir(parents=True)
    rows = [
        {
            "problem_id": name,
            "sample_index": index,
            "verdict": verdict,
            "reward": REWARDS.get(verdict, 0.0),
            "answer": None,
            "graded_by": "rule",
            "judge_text": None,
        }
        for name, given in verdicts.items()
        for index, verdict in enumerate(given)
    ]
    schema = pa.schema(
        [
            ("problem_id", pa.string()),
            ("sample_index", pa.int32()),
            ("verdict", pa.string()),
            ("reward", pa.float32()),
            ("answer", pa.string()),
            ("graded_by", pa.string()),
            ("judge_text", pa.string()),
        ]
    )
    pq.write_table(pa.Table.from_pylist(rows, schema), folder / "verdicts.parquet")
    return folder


def run(
    path: Path, problems: list[dict[str, Any]], config: PassRateConfig | None = None
) -> tuple[Counts, dict[str, Any], StageContext]:
    inputs = {"problems": write_problem_rows(path / "p", problems), "verdicts": path / "v"}
    if not inputs["verdicts"].exists():
        write_verdicts(inputs["verdicts"], VERDICTS)
    output = path / "pass_rate"
    output.mkdir(exist_ok=True)
    where = StageContext("pass_rate", path / "q.jsonl")
    counts = pass_rate(config or PassRateConfig(), inputs, output, where)
    table = pq.read_table(output / "clean.parquet")
    assert table.schema.field("pass_rate").type == pa.float32()
    return counts, {one["problem_id"]: one["pass_rate"] for one in table.to_pylist()}, where


MATH = [row(name, "1", pass_rate=0.9) for name in ("half", "never", "third", "always", "once")]
MATH += [row(name, "1", pass_rate=0.9) for name in ("lost", "only", "unseen")]
OTHERS = [row("code", "", kind="code"), row("chat", "", kind="chat", pass_rate=0.9)]


def test_pass_rates_strictly_between_the_limits_are_kept(tmp_path: Path) -> None:
    counts, rates, made = run(tmp_path, [*MATH, *OTHERS])
    # The source's own pass rate of 0.9 is replaced, by null where there is no rate.
    assert rates == {
        "half": 0.5,
        "third": pytest.approx(1 / 3),
        "once": 0.5,
        "code": 0.25,
        "chat": None,
    }
    assert (counts.unit, counts.read, counts.kept) == ("problems", 10, 5)
    assert counts.dropped == {"always_solved": 2, "never_solved": 1, "no_verdict": 2}
    assert counts.read == counts.kept + sum(counts.dropped.values())
    empty = [0] * 10
    assert counts.info == {
        "rates": {
            "code": {"zero": 0, "edges": counts.info["rates"]["code"]["edges"], "one": 0}
            | {"counts": [0, 0, 1, *empty[3:]]},
            "math": {"zero": 1, "edges": counts.info["rates"]["math"]["edges"], "one": 2}
            | {"counts": [0, 0, 0, 1, 0, 2, 0, 0, 0, 0]},
        },
        "not_filtered": {"chat": 1},
        "failed_verdicts": 5,
        "problems_only_in_verdicts": 1,
    }
    assert not made.warnings


def test_both_limits_are_excluded_and_are_settings(tmp_path: Path) -> None:
    assert [drop_reason(rate, 0.25, 0.75) for rate in (0.2, 0.25, 0.26, 0.74, 0.75, 1.0)] == [
        *("never_solved", "never_solved", None, None, "always_solved", "always_solved"),
    ]
    assert drop_reason(None, 0.0, 1.0) == "no_verdict"
    assert [drop_reason(rate, 0.0, 1.0) for rate in (0.0, 1e-9, 1 - 1e-9, 1.0)] == [
        *("never_solved", None, None, "always_solved"),
    ]
    config = PassRateConfig(above=0.4, below=0.6)
    counts, rates, _ = run(tmp_path, MATH, config)
    assert rates == {"half": 0.5, "once": 0.5}
    assert counts.dropped == {"always_solved": 2, "never_solved": 2, "no_verdict": 2}
    with pytest.raises(ValueError, match="above must be less than below, got 0.5 and 0.5"):
        PassRateConfig(above=0.5, below=0.5)


def test_problems_of_other_kinds_pass(tmp_path: Path) -> None:
    counts, rates, _ = run(tmp_path, [*MATH, *OTHERS], PassRateConfig(kinds=["code"]))
    assert (counts.kept, counts.dropped) == (10, {})
    assert rates == {**dict.fromkeys(one["problem_id"] for one in MATH), "code": 0.25, "chat": None}
    assert counts.info["not_filtered"] == {"chat": 1, "math": 8}


def test_the_histogram_has_its_ends_apart() -> None:
    found = histogram([0.0, 0.0, 0.05, 0.1, 0.3, 0.35, 0.99, 1.0])
    assert found["edges"] == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    assert found["counts"] == [1, 1, 0, 2, 0, 0, 0, 0, 0, 1]
    assert (found["zero"], found["one"]) == (2, 1)


def test_no_verdict_at_all_is_an_error(tmp_path: Path) -> None:
    unknown = [row("lost", "1"), row("unseen", "1"), row("chat", "", kind="chat")]
    with pytest.raises(StageError, match="none of the 2 problems to filter has a verdict"):
        run(tmp_path, unknown)


def test_a_kind_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValidationError, match="kinds.1"):
        PassRateConfig(kinds=["code", "maths"])


def test_nothing_left_is_an_error_and_only_other_kinds_a_warning(tmp_path: Path) -> None:
    solved = [row("never", "1"), row("always", "1")]
    with pytest.raises(StageError, match="no problem is left .*'always_solved': 1"):
        run(tmp_path / "a", solved)
    counts, rates, made = run(tmp_path / "b", [*solved, OTHERS[1]])
    assert (counts.kept, rates) == (1, {"chat": None})
    assert ["every problem to filter was dropped" in one for one in made.warnings] == [True]


def test_malformed_verdicts_are_errors(tmp_path: Path) -> None:
    file = tmp_path / "verdicts.parquet"
    columns = {"problem_id": ["a", "a"], "sample_index": [0, 1], "verdict": ["correct"] * 2}
    for rewards, said in (([1.0, None], "must be in"), ([1.0, 1.5], "got 1.5")):
        pq.write_table(pa.table({**columns, "reward": rewards}), file)
        with pytest.raises(StageError, match=f"response 1 of problem a: the reward .*{said}"):
            read_rates(file)
    pq.write_table(pa.table({**columns, "sample_index": [0, 0], "reward": [1.0, 1.0]}), file)
    with pytest.raises(StageError, match="two verdicts on response 0 of problem a"):
        read_rates(file)
    pq.write_table(pa.table({**columns, "reward": [1.0, 0.0]}).drop(["verdict"]), file)
    with pytest.raises(StageError, match="no column verdict; got problem_id"):
        read_rates(file)
