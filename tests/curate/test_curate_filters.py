"""Which problems point elsewhere, and which only sound like it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from curate_helpers import NEMOTRON, Folder, Rows, read, record, write

from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.curate.convert import convert
from pcl_reasoner.curate.filters import Filter, filtered, has_table, non_letters

ALL: tuple[Filter, ...] = ("url", "image", "no_answer")


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


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        ("| n | f(n) |\n|---|---|\n| 1 | 2 |", True),
        ("n | f(n)\n :-- | --: \n1 | 2", True),
        ("Text.\r\n| n | f |\r\n| - | - |\r\n", True),
        ("<TABLE border=1><tr><td>1</td></tr></table>", True),
        ("\\begin{tabular}{c|c} 1 & 2 \\end{tabular}", True),
        ("\\begin{table*} … \\end{table*}", True),
        ("\\begin{array}{|c|c|} \\hline 1 & 2 \\\\ \\hline \\end{array}", True),
        ("\\left[\\begin{array}{cc|c} 1 & 2 & 3 \\end{array}\\right]", False),
        ("\\begin{array}{c} x \\end{array} and then \\hline", False),
        ("Find |x| and |y|.\n---\nA rule.", False),
        ("no bar above\n---|---\n", False),
        ("|---|---|", False),
        ("a | b\n- item", False),
        ("The numbers in the table are 1 and 2.", False),
        ("x | y\n1 | 2", False),
        ("<tablet>", False),
    ],
)
def test_a_table(problem: str, expected: bool) -> None:
    assert has_table(problem) is expected
    assert filtered(problem, "42", ("table",)) == ("table" if expected else None)


@pytest.mark.parametrize(
    "line",
    [
        " " * 200_000,
        "|" * 200_000 + "\n|" + "-" * 200_000 + "x",
        "-|" * 100_000 + " " * 100_000 + "x",
        "a|b\n" + "-|-\n" * 50_000 + "\\begin{array}" * 20_000,
    ],
    ids=range(4),
)
def test_a_long_line_is_no_trap(line: str) -> None:
    """Searches that try every end of a line again would take hours here."""
    assert has_table(line) is line.startswith("a|b")


@pytest.mark.parametrize(
    ("problem", "share"),
    [
        ("What is 6·7?", 1 / 12),  # the dot is punctuation outside ASCII
        ("Find $x^2 + \\frac{1}{2} = {7}$ [3 marks]!", 0.0),
        ("\u0420\u0435\u0448\u0438\u0442\u0435 2x = 6.", 0.0),  # Russian
        (
            "\u6c42\u89e3\u65b9\u7a0b\uff0c\u7b54\u6848\u662f\uff1f",
            2 / 9,
        ),  # Chinese, with its comma
        ("\u0939\u093f\u0928\u094d\u0926\u0940", 0.0),  # Hindi: marks belong to letters
        (
            "\u2200x\u2208\u211d: x\u00b2 \u2265 0, \u2211 \u2192 \u221e",
            0.0,
        ),  # symbols of mathematics
        ("\u3000\u00a0\t\n", 0.0),
        ("\U0001f600\U0001f600 x", 0.5),
        ("\u2554\u2550\u2550\u2557", 1.0),  # box drawing
        ("a\0\x07\x1b", 0.75),
        ("\ufffd\ue000ab", 0.5),  # what could not be decoded, and a private character
        ("", 0.0),
    ],
)
def test_the_share_of_non_letters(problem: str, share: float) -> None:
    assert non_letters(problem) == pytest.approx(share)


def test_non_letters_above_the_limit_are_dropped() -> None:
    text = "abcdefg\u2550\u2550\u2550"
    assert filtered(text, "42", ("non_letters",)) is None  # 0.3 is not above 0.3
    assert filtered(text + "\u2550", "42", ("non_letters",)) == "non_letters"
    assert filtered(text, "42", ("non_letters",), 0.29) == "non_letters"
    assert filtered("a" * 9 + "\U0001f600", "", ("no_answer", "non_letters"), 0.0) == "non_letters"


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
