"""Reads benchmark files as questions with their answers.

    {"id": "embedded-0001", "problem": "Tom has …", "answer": "11"}           ours
    {"question": "Find …", "answer": "70"}                                    opencompass/AIME2025
    {"id": 60, "problem": "Every …", "solution": "\\boxed{204}", "url": "…"}   math-ai/aime24
    {"ID": "2024-II-4", "Problem": "Let …", "Solution": "…", "Answer": 33}    Maxwell-Jia/AIME_2024

If fingerprints are shipped for a benchmark's name, its questions must match them, because its
scores are shown beside published ones.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcl_reasoner.contamination.fields import ANSWER_FIELDS, ID_FIELDS, PROBLEM_FIELDS, first_of
from pcl_reasoner.contamination.ngrams import QuestionGrams, question_grams
from pcl_reasoner.contamination.text import strip_template
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.grade.answers import last_boxed

SOLUTION_FIELDS = ("solution", "Solution")
"""Fields with a solution. If a record has no answer, the last box of its solution is used."""
SAME_QUESTION = 0.5
"""Share of a shipped question's n-grams that another question must have to count as equal.
Copies of a benchmark differ in LaTeX, in the code of their figures and in misprints."""
SAME_SET = 0.9
"""Share of a shipped benchmark's questions that must be recognised. Some public copies of AIME 2024
reword two of its thirty problems."""
_GRAMS = (8, True)
"""Length of an n-gram, and whether numbers are masked: the settings of the shipped fingerprints."""


@dataclass(frozen=True)
class Question:
    """One question of a benchmark; ``answer`` is its ground truth."""

    benchmark: str
    id: str
    problem: str
    answer: str

    @property
    def key(self) -> str:
        """``benchmark/id``: unique over all benchmarks of a stage."""
        return f"{self.benchmark}/{self.id}"


def read_benchmark(name: str, path: Path) -> list[Question]:
    """Read a benchmark: a .jsonl or .parquet file, or a folder with one or several of them.

    Raises:
        StageError: There is no such file, a record lacks a field, or an id occurs twice.
    """
    found: list[Question] = []
    for file in _files(path):
        found += questions_of(name, file.name, _records(file))
    twice = [one for one, count in Counter(question.id for question in found).items() if count > 1]
    if twice:
        raise StageError(
            f"{path}: id {twice[0]!r} occurs in two of its files. Where they hold the same "
            "questions, take one: a source's key files, e.g. files: '*.parquet'."
        )
    return found


def _records(file: Path) -> Iterator[tuple[int, Any]]:
    """Yield (row or line number from 1, record) of a file; blank lines are skipped."""
    if file.suffix == ".parquet":
        import pyarrow.parquet as pq

        yield from enumerate(pq.read_table(file).to_pylist(), 1)
        return
    for number, line in enumerate(file.read_text(encoding="utf-8").split("\n"), 1):
        if line.strip():
            yield number, _parsed(line, f"{file.name}, line {number}")


def _parsed(line: str, where: str) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        # Skipping the line would change the score unnoticed.
        raise StageError(f"{where}: not JSON ({error}). Correct the line.") from error


def _files(path: Path) -> list[Path]:
    """Return a benchmark's files, also from subfolders, which data sets of the hub have."""
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
    """Check a benchmark's questions against the fingerprints that are shipped for its name.

    Args:
        name: E.g. ``aime24``; without fingerprints for this name, nothing is checked.
        questions: All questions of the benchmark.

    Returns:
        Ids of the questions that match no fingerprint. They are so few that they are accepted as
        reworded ones.

    Raises:
        StageError: Too few questions match, or the shipped benchmark has more or fewer questions.
    """
    from pcl_reasoner.contamination import fingerprints

    if name not in fingerprints.shipped_names():
        return []
    # Loading refuses a file that was made with other settings.
    file, settings = fingerprints.SHIPPED / f"{name}.json", fingerprints.Settings(256, *_GRAMS)
    shipped = [one.grams for one in fingerprints.load(file, settings, None)]
    unrecognised = _not_recognised(shipped, questions)
    found = len(questions) - len(unrecognised)
    if len(questions) != len(shipped) or found < SAME_SET * len(shipped):
        raise StageError(
            f"benchmark {name}: has {len(questions)} questions; {found} match a question of the "
            f"shipped {name}, which has {len(shipped)} (compared by n-grams). Its scores would be "
            "shown beside published ones: take another file or revision, or give it another name."
        )
    return unrecognised


def _not_recognised(shipped: Iterable[QuestionGrams], questions: Sequence[Question]) -> list[str]:
    """Return ids of unmatched questions; each shipped question matches at most one question."""
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
    """Return the share of a shipped question's n-grams that a question has; 1 for equal words."""
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
        StageError: There are no records, a record lacks a field, or an id occurs twice.
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
    answer, solution = first_of(value, ANSWER_FIELDS), first_of(value, SOLUTION_FIELDS)
    if answer is None and isinstance(solution, str):
        answer = last_boxed(solution)
    if not isinstance(answer, str | int | float) or isinstance(answer, bool) or answer == "":
        raise StageError(
            f"{where}: answer must be text or a number, got {answer!r}. Give the ground truth as "
            "answer."
        )
    identity = first_of(value, ID_FIELDS)
    # The same id as in the contamination check, so that its hits can be matched.
    question_id = f"{Path(file).stem}:{number - 1}" if identity is None else str(identity)
    return Question(benchmark, question_id, problem, str(answer))
