"""Benchmark records -> questions with their answers.

{"id": "embedded-0001", "problem": "Tom has 3 apples …", "answer": "11"}
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pcl_reasoner.errors import StageError


@dataclass(frozen=True)
class Question:
    """One question of a benchmark; ``answer`` is its ground truth."""

    benchmark: str
    id: str
    problem: str
    answer: str

    @property
    def key(self) -> str:
        """Distinct over all benchmarks of a stage."""
        return f"{self.benchmark}/{self.id}"


def parse_lines(lines: Iterable[str], file: str) -> list[tuple[int, Any]]:
    """JSON lines -> (1-based line, value); blank lines are passed over.

    Raises:
        StageError: A line is not JSON. Left out it would raise or lower the score unseen.
    """
    values = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            values.append((number, json.loads(line)))
        except ValueError as error:
            raise StageError(
                f"{file}, line {number}: not JSON ({error}). Mend the line."
            ) from error
    return values


def questions_of(benchmark: str, file: str, records: Iterable[tuple[int, Any]]) -> list[Question]:
    """Check a benchmark's records.

    Args:
        benchmark: The benchmark's name.
        file: For errors.
        records: (record's number, mapping with ``problem`` or ``question``, ``answer``, ``id``).

    Raises:
        StageError: There are none, one lacks a field, or an id stands twice.
    """
    found: dict[str, Question] = {}
    for number, value in records:
        question = _question(benchmark, f"{file}, record {number}", number, value)
        if question.id in found:
            raise StageError(f"{file}, record {number}: id {question.id!r} stands twice.")
        found[question.id] = question
    if not found:
        raise StageError(f"{file}: no questions. A benchmark has one JSON object a line.")
    return list(found.values())


def _question(benchmark: str, where: str, number: int, value: Any) -> Question:
    if not isinstance(value, Mapping):
        raise StageError(f"{where}: must be an object, got {type(value).__name__}.")
    problem, answer = value.get("problem", value.get("question")), value.get("answer")
    if not isinstance(problem, str) or not problem.strip():
        raise StageError(f"{where}: no text in problem (or question); keys: {', '.join(value)}.")
    if not isinstance(answer, str | int | float) or isinstance(answer, bool) or answer == "":
        raise StageError(
            f"{where}: answer must be text or a number, got {answer!r}. Give the ground truth as "
            "answer."
        )
    identity = value.get("id")
    return Question(benchmark, str(number if identity is None else identity), problem, str(answer))
