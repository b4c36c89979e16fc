"""Our verdict and math-verify's on a few hundred pairs, as docs/walk/grading.md tells it."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest
from answer_pairs import PAIRS

from pcl_reasoner.verifiers.answers import grade_by_rule

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "walk" / "grading.md"
MISTAKEN = {
    (r"The answer is $\boxed{1e3}$.", "1000"),
    (r"The answer is $\boxed{\text{(B)}\ 12}$.", "12"),
    (r"The answer is $\boxed{(1+i)^2}$.", "2i"),
    (r"The answer is $\boxed{3\text{ m}}$.", r"3\text{ cm}"),
    (r"\boxed 8", "8"),
    (r"\boxed{\text{the answer is } 8}", "8"),
}
"""Where we are incorrect, and the document says so."""


def ours(text: str, truth: str) -> bool:
    return grade_by_rule(f"<think>hm</think>{text}", truth, "stop").outcome == "correct"


def math_verify_alone(text: str, truth: str) -> bool:
    from math_verify import parse, verify

    expected = parse(f"\\boxed{{{truth}}}", parsing_timeout=None)
    return bool(verify(expected, parse(text, parsing_timeout=None), timeout_seconds=None))


@pytest.mark.parametrize("kind", PAIRS)
def test_every_pair_is_judged_as_a_mathematician_would(kind: str) -> None:
    judged = {(text, truth): ours(text, truth) for text, truth, _ in PAIRS[kind]}
    expected = {(text, truth): same for text, truth, same in PAIRS[kind]}
    incorrect = {pair for pair, found in judged.items() if found != expected[pair]}
    assert incorrect == {pair for pair in expected if pair in MISTAKEN}


def row(kind: str) -> str:
    """| kind | pairs | ours: credit not given, given incorrectly | math-verify's: the same |"""
    counts = []
    for judge in (ours, math_verify_alone):
        found = [(judge(text, truth), same) for text, truth, same in PAIRS[kind]]
        counts += [found.count((False, True)), found.count((True, False))]
    return f"| {kind} | {len(PAIRS[kind])} | " + " | ".join(map(str, counts)) + " |"


@pytest.mark.slow
def test_the_documents_table_is_what_is_found() -> None:
    logging.disable(logging.WARNING)  # it warns that nobody watches its time
    rows = [row(kind) for kind in PAIRS]
    logging.disable(logging.NOTSET)
    written = re.findall(r"^\| [^|]+ (?:\| \d+ ){5}\|$", DOCUMENT.read_text(), re.M)
    assert written == rows
