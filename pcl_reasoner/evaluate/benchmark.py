"""Reads benchmark files as questions with their answers.

    {"id": "embedded-0001", "problem": "Tom has …", "answer": "11"}           ours
    {"question": "Find …", "answer": "70"}                                    opencompass/AIME2025
    {"id": 60, "problem": "Every …", "solution": "\\boxed{204}", "url": "…"}   math-ai/aime24
    {"ID": "2024-II-4", "Problem": "Let …", "Solution": "…", "Answer": 33}    Maxwell-Jia/AIME_2024

A benchmark with the name of one whose fingerprints are shipped must be that benchmark, because its
scores are shown beside published ones.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcl_reasoner.contamination.fields import ANSWER_FIELDS, ID_FIELDS, PROBLEM_FIELDS, first_of
from pcl_reasoner.core.errors import StageError

if TYPE_CHECKING:
    from pcl_reasoner.contamination.ngrams import QuestionGrams

SOLUTION_FIELDS = ("solution", "Solution")
"""If a record has no answer, the last box of its solution is the answer."""
SAME_QUESTION = 0.5
"""Share of a shipped question's n-grams that a question must have to count as the same question.
Copies of a benchmark differ in LaTeX, in the source of figures and in misprints."""
SAME_SET = 0.9
"""Share of a shipped benchmark's questions that must be recognised. Some public copies of AIME 2024
reword two of its thirty problems."""
_WINDOW_TOKENS, _GRAMS = 256, (8, True)
"""The settings of the shipped fingerprints; files with other settings are refused when read."""


@dataclass(frozen=True)
class Question:
    """One question of a benchmark; ``answer`` is its ground truth."""

    benchmark: str
    id: str
    problem: str
    answer: str

    @property
    def key(self) -> str:
        """Unique over all benchmarks of a stage."""
        return f"{self.benchmark}/{self.id}"


def parse_lines(lines: Iterable[str], file: str) -> list[tuple[int, Any]]:
    """JSON lines -> (1-based line number, value); blank lines are skipped.

    Raises:
        StageError: A line is not JSON. Skipping it would change the score unnoticed.
    """
    values = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            values.append((number, json.loads(line)))
        except ValueError as error:
            raise StageError(
                f"{file}, line {number}: not JSON ({error}). Correct the line."
            ) from error
    return values


def read_benchmark(name: str, path: Path) -> list[Question]:
    """Read a benchmark: a .jsonl or .parquet file, or a folder with one or several of them.

    Raises:
        StageError: There is no such file, a record lacks a field, or an id occurs twice.
    """
    import pyarrow.parquet as pq

    found: list[Question] = []
    for file in _files(path):
        if file.suffix == ".parquet":
            records = list(enumerate(pq.read_table(file).to_pylist(), 1))
        else:
            records = parse_lines(file.read_text(encoding="utf-8").split("\n"), file.name)
        found += questions_of(name, file.name, records)
    twice = [one for one, count in Counter(question.id for question in found).items() if count > 1]
    if twice:
        raise StageError(
            f"{path}: id {twice[0]!r} occurs in two of its files. Where they hold the same "
            "questions, take one: a source's key files, e.g. files: '*.parquet'."
        )
    return found


def _files(path: Path) -> list[Path]:
    """A benchmark's files; subfolders are searched too, because data sets of the hub have them."""
    if path.is_file():
        return [path]
    files = [
        file
        for file in path.rglob("*")
        if file.suffix in (".jsonl", ".parquet")
        and file.name != "quarantined.jsonl"
        and not any(part.startswith(".") for part in file.relative_to(path).parts)
    ]
    if not files:
        raise StageError(f"{path}: no .jsonl or .parquet. The role benchmark needs one.")
    return sorted(files)


def check_shipped(name: str, questions: Sequence[Question]) -> list[str]:
    """Check that a benchmark with the name of a shipped one is that benchmark.

    Args:
        name: E.g. ``aime24``; under a name that is not shipped nothing is checked.
        questions: All questions of the benchmark.

    Returns:
        Ids of questions that were not recognised. They are so few that they are taken for reworded
        copies of the missing questions.

    Raises:
        StageError: It is another benchmark, or an incomplete one.
    """
    from pcl_reasoner.contamination.fingerprints import shipped_names

    if name not in shipped_names():
        return []
    shipped = _shipped(name)
    unrecognised = _not_recognised(shipped, questions)
    found = len(questions) - len(unrecognised)
    if len(questions) != len(shipped) or found < SAME_SET * len(shipped):
        raise StageError(
            f"benchmark {name}: has {len(questions)} questions, of which {found} are those of "
            f"{name}, which has {len(shipped)} (compared by n-grams with the shipped "
            "fingerprints). Its scores would be shown beside published ones: take another file or "
            "revision, or give it another name."
        )
    return unrecognised


def _shipped(name: str) -> list[QuestionGrams]:
    """The n-grams of a shipped benchmark's questions."""
    from pcl_reasoner.contamination import fingerprints

    file = fingerprints.SHIPPED / f"{name}.json"
    settings = fingerprints.Settings(_WINDOW_TOKENS, *_GRAMS)
    return [one.grams for one in fingerprints.load(file, settings, None)]


def _not_recognised(shipped: Iterable[QuestionGrams], questions: Sequence[Question]) -> list[str]:
    """Ids of questions that match no shipped one; a shipped one matches one question at most."""
    from pcl_reasoner.contamination.ngrams import question_grams
    from pcl_reasoner.contamination.text import strip_template

    remaining, unrecognised = list(shipped), []
    for question in questions:
        grams = question_grams(strip_template(question.problem), *_GRAMS)
        shares = [_share(one, grams) for one in remaining]
        best = max(shares, default=0.0)
        if best >= SAME_QUESTION:
            del remaining[shares.index(best)]
        else:
            unrecognised.append(question.id)
    return unrecognised


def _share(shipped: QuestionGrams, grams: QuestionGrams) -> float:
    """Share of a shipped question's n-grams that a question has; 1 if all words are the same."""
    if shipped.text_hash == grams.text_hash:
        return 1.0
    return len(shipped.grams & grams.grams) / max(len(shipped.grams), 1)


def questions_of(benchmark: str, file: str, records: Iterable[tuple[int, Any]]) -> list[Question]:
    """Make questions from a benchmark's records, and check them.

    Args:
        benchmark: The benchmark's name.
        file: The file's name, for errors and for ids of records that have none.
        records: (record's number from 1, mapping with one of PROBLEM_FIELDS, one of ANSWER_FIELDS
            or SOLUTION_FIELDS, and optionally one of ID_FIELDS).

    Raises:
        StageError: There are none, one lacks a field, or an id occurs twice.
    """
    found: dict[str, Question] = {}
    for number, value in records:
        question = _question(benchmark, file, number, value)
        if question.id in found:
            raise StageError(f"{file}, record {number}: id {question.id!r} occurs twice.")
        found[question.id] = question
    if not found:
        raise StageError(f"{file}: no questions. A benchmark has one JSON object per line.")
    return list(found.values())


def _question(benchmark: str, file: str, number: int, value: Any) -> Question:
    where = f"{file}, record {number}"
    if not isinstance(value, Mapping):
        raise StageError(f"{where}: must be an object, got {type(value).__name__}.")
    problem = first_of(value, PROBLEM_FIELDS)
    if not isinstance(problem, str) or not problem.strip():
        raise StageError(f"{where}: no text in problem (or question); keys: {', '.join(value)}.")
    answer = _answer(value)
    if not isinstance(answer, str | int | float) or isinstance(answer, bool) or answer == "":
        raise StageError(
            f"{where}: answer must be text or a number, got {answer!r}. Give the ground truth as "
            "answer."
        )
    identity = first_of(value, ID_FIELDS)
    # The id that the contamination check gives, so that its hits can be matched.
    question_id = f"{Path(file).stem}:{number - 1}" if identity is None else str(identity)
    return Question(benchmark, question_id, problem, str(answer))


def _answer(value: Mapping[str, Any]) -> Any:
    """The ground truth: the answer field, or the last box of the solution."""
    from pcl_reasoner.grade.answers import last_boxed

    answer = first_of(value, ANSWER_FIELDS)
    if answer is not None:
        return answer
    solution = first_of(value, SOLUTION_FIELDS)
    return last_boxed(solution) if isinstance(solution, str) else None
