"""Problems, a teacher's responses and a third model's server for the tests of the room revise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from grade_helpers import correct, judge_server, write_responses

from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.stage import Counts, StageContext
from pcl_reasoner.revise.config import ReviseConfig
from pcl_reasoner.revise.stage import revise

PROBLEM_COLUMNS = pa.schema(
    [
        ("problem_id", pa.string()),
        ("problem", pa.string()),
        ("ground_truth", pa.string()),
        ("pass_rate", pa.float32()),
        ("kind", pa.string()),
        ("checks", pa.string()),
    ]
)

PLANTED: dict[str, tuple[str, list[str | None], str | None]] = {
    **{f"right{i}": (f"{i}", [f"{i}", f"{i}", None, "99"], None) for i in range(4)},
    **{f"wrong{i}": (f"{i}", [f"{i + 10}"] * 3 + [f"{i}"], f"{i + 10}.0") for i in range(8)},
    **{f"upheld{i}": (f"{i}", [f"{i + 10}"] * 3 + [None], f"{i}") for i in range(2)},
    **{f"third{i}": (f"{i}", [f"{i + 10}"] * 4, f"{i + 20}") for i in range(2)},
}
"""Problem -> (ground truth, the teacher's answers, the third model's answer). Of the 12 disputed
ground truths, 8 are wrong, the third model upholds 2, and it answers something else to 2."""


def write_problem_rows(
    folder: Path, rows: Sequence[Mapping[str, Any]], name: str = "clean.parquet"
) -> Path:
    """Rows with the columns of PROBLEM_COLUMNS; missing ones are null."""
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(
        pa.Table.from_pylist([dict(row) for row in rows], PROBLEM_COLUMNS), folder / name
    )
    return folder


def row(name: str, truth: str, kind: str | None = "math", **more: Any) -> dict[str, Any]:
    problem = {"problem_id": name, "problem": f"Problem {name}?", "ground_truth": truth}
    return {**problem, "kind": kind, "checks": "", **more}


def write_teacher(folder: Path, answers: Mapping[str, Sequence[str | None]]) -> Path:
    """Responses in a scrambled order; None is a response without a box."""
    rows = [
        (name, index, correct(answer) if answer else "<think>so</think>I do not know", "stop", 4)
        for name, given in answers.items()
        for index, answer in enumerate(given)
    ]
    return write_responses(folder, rows[::-1])


def plant(path: Path) -> dict[str, Path]:
    """The inputs of a stage that checks PLANTED."""
    rows = [row(name, truth) for name, (truth, _, _) in PLANTED.items()]
    answers = {name: given for name, (_, given, _) in PLANTED.items()}
    return {
        "problems": write_problem_rows(path / "problems", rows),
        "responses": write_teacher(path / "sample", answers),
    }


def name_in(body: Mapping[str, Any]) -> str:
    """The planted problem that a request asks about."""
    return str(body["messages"][0]["content"]).removeprefix("Problem ").split("?")[0]


def third_model(*models: str) -> AbstractContextManager[tuple[str, list[dict[str, Any]]]]:
    """A server that answers the planted problems."""

    def answer(body: dict[str, Any], number: int) -> tuple[int, Any]:
        return 200, f"<think>\\boxed{{7}}?</think>It is \\boxed{{{PLANTED[name_in(body)][2]}}}."

    return judge_server(answer, *models)


def run_revise(
    inputs: Mapping[str, Path], output: Path, config: ReviseConfig | None = None, **placement: Any
) -> tuple[Counts, StageContext]:
    output.mkdir(parents=True, exist_ok=True)
    where = StageContext("revise", output.parent / "quarantined.jsonl", Placement(**placement))
    return revise(config or ReviseConfig(), inputs, output, where), where
