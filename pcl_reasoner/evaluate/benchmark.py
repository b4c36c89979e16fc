"""Reads benchmark files as questions with their answers.

    {"id": "embedded-0001", "problem": "Tom has …", "answer": "11"}           ours
    {"question": "Find …", "answer": "70"}                                    opencompass/AIME2025
    {"id": 60, "problem": "Every …", "solution": "\\boxed{204}", "url": "…"}   math-ai/aime24
    {"ID": "2024-II-4", "Problem": "Let …", "Solution": "…", "Answer": 33}    Maxwell-Jia/AIME_2024
    {"question_id": "abc301_a", "question_content": "You are given …",        LiveCodeBench
     "public_test_cases": "[…]", "private_test_cases": "eJx…", …}
    {"id": "code-7", "problem": "Write …", "kind": "code", "checks": {"tests": {…}}}          ours

A question without an answer has ``checks``, see formats/checks.py. Without ``kind``, a question
with tests is code, one with instructions is an instruction, and others are of mathematics.

If fingerprints are shipped for a benchmark's name, its questions must match them, because its
scores are shown beside published ones.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from pcl_reasoner.contamination.fields import ANSWER_FIELDS, ID_FIELDS, PROBLEM_FIELDS, first_of
from pcl_reasoner.contamination.ngrams import QuestionGrams, question_grams
from pcl_reasoner.core.artifact import QUARANTINED
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.json_lines import json_lines, parsed
from pcl_reasoner.core.kinds import KINDS
from pcl_reasoner.core.listing import files_below
from pcl_reasoner.formats import ifeval, livecodebench
from pcl_reasoner.formats.records import Dates, Malformed, ReadLimits, Reason, Row
from pcl_reasoner.prompt.question_text import strip_template
from pcl_reasoner.verifiers.answers import ANSWERED, last_boxed
from pcl_reasoner.verifiers.checked import read_checks
from pcl_reasoner.verifiers.kept_checks import KeptChecks
from pcl_reasoner.verifiers.small_batch import check_gradable

SOLUTION_FIELDS = ("solution", "Solution")
"""Fields with a solution. If a record has no answer, the last box of its solution is used."""
SAME_QUESTION = 0.5
"""Share of a shipped question's n-grams that another question must have to count as equal.
Copies of a benchmark differ in LaTeX, in the code of their figures and in misprints."""
SAME_SET = 0.9
"""Share of a shipped benchmark's questions that must be recognised. Some public copies of AIME 2024
reword two of its thirty problems."""
TESTS_BYTES = 1 << 30
"""Maximum bytes of a question's tests. More than convert allows, as no question can be left out."""
ANY_DATE = Dates()
_CHECKED = {"tests": "code", "instructions": "instruction"}
"""A part of ``checks`` -> the kind of a question that has it."""
_GRAMS = (8, True)
"""Length of an n-gram, and whether numbers are masked: the settings of the shipped fingerprints."""


@dataclass(frozen=True)
class Question:
    """One question of a benchmark.

    Args:
        benchmark: The benchmark's name.
        id: The question's id in it.
        problem: The question.
        answer: Its ground truth; "" if its responses are checked otherwise.
        kind: math, code, instruction or science.
        checks: JSON, what a verifier needs, or ""; also "" after read_benchmark, which keeps them
            in a file.
    """

    benchmark: str
    id: str
    problem: str
    answer: str
    kind: str = "math"
    checks: str = ""

    @property
    def key(self) -> str:
        """``benchmark/id``: unique over all benchmarks of a stage."""
        return f"{self.benchmark}/{self.id}"


@dataclass(frozen=True)
class Benchmark:
    """A benchmark's questions.

    Args:
        questions: Those that are asked.
        outside_dates: The number of questions that are not, for the date of their contest.
    """

    questions: list[Question]
    outside_dates: int


def read_benchmark(
    name: str, path: Path, kept: KeptChecks, contests: Dates = ANY_DATE
) -> Benchmark:
    """Read a benchmark: a .jsonl or .parquet file, or a folder with one or several of them.

    Args:
        name: The benchmark's name.
        path: The file or folder.
        kept: Gets the questions' checks, by the key of the question.
        contests: Days of the contests whose questions are asked, for LiveCodeBench.

    Raises:
        StageError: There is no such file, a record lacks a field, an id occurs twice, a question
            cannot be graded, or all are of other days.
    """
    found: list[Question] = []
    outside = 0
    for file in _files(path):
        for question in _asked(name, file.name, _records(file), contests):
            if question is None:
                outside += 1
                continue
            kept.keep(question.key, question.checks)
            found.append(replace(question, checks=""))
    twice = [one for one, count in Counter(question.id for question in found).items() if count > 1]
    if twice:
        raise StageError(
            f"{path}: id {twice[0]!r} occurs in two of its files. Where they hold the same "
            "questions, take one: a source's key files, e.g. files: '*.parquet'."
        )
    if not found:
        raise StageError(
            f"{path}: all {outside} questions are of contests on other days. Change contest_since "
            "or contest_before."
        )
    return Benchmark(found, outside)


def first_questions(path: Path) -> list[Question]:
    """Read the first question of each file of a benchmark.

    Raises:
        StageError: There is no file, or a record lacks a field.
    """
    return [
        question
        for file in _files(path)
        for question in questions_of(path.stem, file.name, islice(_records(file), 1))
    ]


def _records(file: Path) -> Iterator[tuple[int, Any]]:
    """Yield (row or line number from 1, record) of a file; blank lines are skipped."""
    if file.suffix == ".parquet":
        from pcl_reasoner.curate.parts import record_batches

        rows = (row for batch in record_batches(file) for row in batch.to_pylist())
        yield from enumerate(rows, 1)
        return
    # Line by line: a file of LiveCodeBench has up to 1.3 GB. An unreadable line is an error, since
    # the score would change unnoticed without it.
    yield from json_lines(file)


def _files(path: Path) -> list[Path]:
    """Return a benchmark's files, also from subfolders, which data sets of the hub have."""
    if path.is_file():
        return [path]
    found = files_below(path, ("**/*.jsonl", "**/*.parquet"))
    files = [file for file in found if file.name != QUARANTINED]
    if not files:
        raise StageError(f"{path}: no .jsonl or .parquet. The role benchmark needs one.")
    return files


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
        StageError: There are no records, a record lacks a field, an id occurs twice, or a question
            cannot be graded.
    """
    return [one for one in _asked(benchmark, file, records, ANY_DATE) if one is not None]


def _asked(
    benchmark: str, file: str, records: Iterable[tuple[int, Any]], contests: Dates
) -> Iterator[Question | None]:
    """Yield the question of each record; None for one of a contest on another day."""
    ids = set()
    number = 0
    for number, value in records:
        question = _question(benchmark, file, number, value, contests)
        if question is not None:
            if question.id in ids:
                raise StageError(
                    f"{file}, record {number}: id {question.id!r} occurs twice. Correct the ids."
                )
            ids.add(question.id)
            where = f"{question.key} ({file}, record {number})"
            check_gradable(where, question.kind, read_checks(where, question.checks))
        yield question
    if not number:
        raise StageError(f"{file}: no questions. A benchmark has one JSON object per line.")


def _question(
    benchmark: str, file: str, number: int, value: Any, contests: Dates
) -> Question | None:
    where = f"{file}, record {number}"
    if not isinstance(value, Mapping):
        raise StageError(f"{where}: must be an object, got {type(value).__name__}.")
    identity = first_of(value, ID_FIELDS)
    # The same id as in the contamination check, so that its hits can be matched.
    question_id = f"{Path(file).stem}:{number - 1}" if identity is None else str(identity)
    if "question_content" in value:
        return _published(benchmark, question_id, where, livecodebench.read, value, contests)
    if "instruction_id_list" in value:
        return _published(benchmark, question_id, where, ifeval.read, value, contests)
    problem = first_of(value, PROBLEM_FIELDS)
    if not isinstance(problem, str) or not problem.strip():
        raise StageError(f"{where}: no text in problem (or question); keys: {', '.join(value)}.")
    checks = _checks(where, value.get("checks"))
    kind = _kind(where, value.get("kind"), checks)
    answer = _answer(where, value, needed=kind in ANSWERED)
    text = json.dumps(checks, ensure_ascii=False) if checks else ""
    for one in (question_id, problem, answer, text):
        if not _is_unicode(one):
            raise StageError(f"{where}: has half of a character (a surrogate) in its text.")
    return Question(benchmark, question_id, problem, answer, kind, text)


def _is_unicode(text: str) -> bool:
    """Whether a text can be written: JSON's escapes also name halves of characters."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _answer(where: str, value: Mapping[str, Any], needed: bool) -> str:
    answer, solution = first_of(value, ANSWER_FIELDS), first_of(value, SOLUTION_FIELDS)
    if answer is None and not needed:
        return ""
    if answer is None and isinstance(solution, str):
        answer = last_boxed(solution)
    is_number = isinstance(answer, int | float) and not isinstance(answer, bool)
    if not (isinstance(answer, str) and answer or is_number and math.isfinite(answer)):
        raise StageError(
            f"{where}: answer must be text or a number, got {answer!r}. Give the ground truth as "
            "answer."
        )
    return str(answer)


def _kind(where: str, kind: Any, checks: Mapping[str, Any]) -> str:
    """Return the kind that a record says, or the one of its checks."""
    if kind is None:
        return next((found for part, found in _CHECKED.items() if part in checks), "math")
    if kind not in KINDS:
        expected = ", ".join(KINDS)
        raise StageError(f"{where}: kind must be one of {expected}; got {kind!r}. Correct it.")
    return str(kind)


def _checks(where: str, checks: Any) -> Mapping[str, Any]:
    """Return checks, which may be an object or its JSON; empty if there are none."""
    if checks is None or checks == "":
        return {}
    if isinstance(checks, str):
        checks = parsed(checks, f"{where}, checks")
    found = checks
    if not isinstance(found, Mapping) or not _CHECKED.keys() & found.keys():
        raise StageError(
            f"{where}: checks must be an object with tests or instructions, got "
            f"{str(checks)[:80]!r}. Correct the record."
        )
    return found


def _published(
    benchmark: str,
    question_id: str,
    where: str,
    read: Callable[[dict[str, Any], ReadLimits], Row],
    value: Mapping[str, Any],
    contests: Dates,
) -> Question | None:
    """Return a question of LiveCodeBench or IFEval, with all of its tests or instructions.

    Returns:
        None if its contest was on another day than those that are asked for.
    """
    try:
        row = read(dict(value), ReadLimits(None, TESTS_BYTES, contests))
    except Malformed as error:
        if str(error) == Reason.OUTSIDE_DATES:
            return None
        # Leaving the question out would change the score unnoticed.
        detail = f" ({error.detail})" if error.detail else ""
        raise StageError(f"{where}: {error}{detail}. Fetch the file again.") from error
    return Question(benchmark, question_id, row.problem, "", row.kind, row.checks)
