"""Which problems point elsewhere, and which only sound like it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from curate_helpers import NEMOTRON, Folder, Rows, read, record, write

from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.curate.convert import convert
from pcl_reasoner.curate.filters import filtered

ALL = ("url", "image", "no_answer")


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        ("See https://example.org/p7 for the table.", "url"),
        ("(FTP://x.y/z)", "url"),
        ("As on www.example.org: find x.", "url"),
        ("What is www. in words?", None),
        ("![](a) What is x?", "image"),
        ('<img src="a"> What is x?', "image"),
        ("[asy] draw((0,0)--(1,1)); [/asy] Find x.", "image"),
        ("Look at triangle.png and find x.", "image"),
        ("In the figure, AB = 3.", "image"),
        ("In the figure below, AB = 3.", "image"),
        ("The diagram shown below has six sides.", "image"),
        ("The graph on the right is that of f.", "image"),
        ("Use the accompanying diagram.", "image"),
        ("In Figure 3, AB is a chord.", "image"),
        ("How much is shown in the picture?", "image"),
        ("Find the image of the point (1, 2) under the rotation.", None),
        ("What is the dimension of the image of T?", None),
        ("How many three-figure numbers are there?", None),
        ("Find the area of the figure bounded by y = x and y = x^2.", None),
        ("Of the numbers in the table below, which is prime?", None),
        ("The graph of f passes through (0, 1).", None),
        ("Round to 3 significant figures.", None),
    ],
)
def test_a_problem(problem: str, reason: str | None) -> None:
    assert filtered(problem, "42", ALL) == reason
    assert filtered(problem, "42", ()) is None


def test_a_row_without_an_answer() -> None:
    assert filtered("q", " \n", ALL) == "no_answer"
    assert filtered("q", "", ("url", "image")) is None
    assert filtered("see https://x.y", "", ALL) == "url"


def test_convert_counts_and_keeps_apart_what_it_filters(
    folder: Folder, context: StageContext, quarantined: Callable[[], Rows]
) -> None:
    problems = ["p", "see https://x.y", "in the figure", "p", "p"]
    rows = [record(problem, answer=None if i == 3 else "1") for i, problem in enumerate(problems)]
    source, output = folder("source"), folder("out")
    write(source / "a.parquet", rows)
    config = NEMOTRON.model_copy(update={"filters": ("no_answer", "image")})
    counts = convert(config, {"source": source}, output, context)
    assert (counts.read, counts.kept) == (5, 3)
    assert counts.dropped == {"image": 1, "no_answer": 1}
    assert [(r["row"], r["reason"], r["raw"]) for r in quarantined()] == [
        (2, "image", "in the figure"),
        (3, "no_answer", "p"),
    ]
    assert [r["row_id"] for r in read(output / "rows")] == [f"a.parquet:{i}" for i in (0, 1, 4)]
