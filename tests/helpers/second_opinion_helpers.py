"""A scripted judge of pairs, and the data of the tests that ask it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

WALK = (
    "Every morning Ada walks 9 kilometers at a constant speed and stops at a bakery on her way. "
    "At 4 kilometers per hour the walk takes her 3 hours, the stop included. How many minutes "
    "does she spend in the bakery?"
)
GRID = (
    "A token starts in the lower left corner of a grid with 6 rows and 8 columns and moves only "
    "right or up. In how many ways can it reach the upper right corner with exactly 4 turns?"
)
QUESTIONS = {"walk": WALK, "grid": GRID}
COPY = f"Question: {GRID}\nAnswer:"
"""All words of a question: a certain copy."""
OTHER_NUMBERS = WALK.replace("9", "8").replace("3 hours", "5 hours")
"""Flagged by its n-grams, numbers masked."""
PART = (
    "Every morning Ada walks 9 kilometers at a constant speed and stops at a bakery. She walks "
    "at 4 kilometers per hour; with the stop she needs 180 minutes. How long is the stop?"
)
"""8 of the 34 8-grams of WALK, 0.2353: not enough for a rule, and above the lower bar."""
FAR = "The angles of a triangle are in arithmetic progression. Find the middle angle."
ROWS = [COPY, OTHER_NUMBERS, PART, FAR]

Script = Callable[[str, str], str | None]
"""(Text, question) as the judge reads them -> what it replies."""


def read_pair(body: dict[str, Any]) -> tuple[str, str]:
    """The text and the question that a request asks about, between the lines of their frames."""
    prompt = body["messages"][0]["content"]
    found = [
        re.search(rf"=== {name} (\w{{16}}) BEGINS ===\n(.*)\n=== {name} \1 ENDS ===", prompt, re.S)
        for name in ("TEXT", "QUESTION")
    ]
    text, question = (one[2] for one in found if one)
    return text, question


def scripted(script: Script) -> Callable[[dict[str, Any], int], tuple[int, str | None]]:
    """An ``answer`` of grade_helpers.judge_server."""
    return lambda body, number: (200, script(*read_pair(body)))


def by_rule(text: str, question: str) -> str:
    """A part of the walk is the walk; the walk with other numbers is not."""
    same = text == PART and question == WALK
    return f"They differ in words.\nVERDICT: {'YES' if same else 'NO'}"


def write_lines(path: Path, column: str, texts: dict[str, str]) -> Path:
    lines = [json.dumps({"id": name, column: text}) for name, text in texts.items()]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
