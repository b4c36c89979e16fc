"""Read responses and their problems, one batch at a time."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.files import nearest
from pcl_reasoner.core.kinds import KINDS, Kind, Suffix
from pcl_reasoner.curate.parts import fixed_batches, open_parquet, read_parquet, record_batches
from pcl_reasoner.inference.response_log import FAILED
from pcl_reasoner.verifiers.checked import read_checks
from pcl_reasoner.verifiers.kept_checks import KeptChecks

_BATCH_ROWS = 256
"""Responses in memory at once: at 100 000 tokens each they take ~150 MB."""
_PROBLEM_COLUMNS = ("problem_id", "problem", "ground_truth", "kind", "checks")
_READ_COLUMNS = ["problem_id", "sample_index", "response", "finish_reason", "n_tokens"]


def pairs(table: Any, first: str, second: str) -> list[tuple[Any, Any]]:
    """Return the values of two columns of a table or batch as one pair per row."""
    return list(zip(table[first].to_pylist(), table[second].to_pylist(), strict=True))


def column_of_problems(folder: Path, column: str) -> dict[str, Any]:
    """Return problem_id -> value of a column, from the folder's clean.parquet."""
    table = read_parquet(folder / "clean.parquet", ["problem_id", column])
    return dict(pairs(table, "problem_id", column))


def prompt_columns(folder: Path, suffix: Suffix) -> dict[str, dict[str, Any]]:
    """Return what a problem's prompt needs: column of clean.parquet -> (problem_id -> value).

    Args:
        folder: Folder with clean.parquet.
        suffix: The text after the problem; if each kind has its own, the kind is read as well.
    """
    columns = ["problem"] if isinstance(suffix, str) else ["problem", "kind"]
    return {column: column_of_problems(folder, column) for column in columns}


@dataclass(frozen=True)
class Question:
    """What grading needs of a problem.

    Args:
        problem: Its text.
        truth: Its ground truth, or "".
        kind: One of core.kinds.KINDS.
        checks: What a verifier needs, e.g. {"tests": …}.
    """

    problem: str
    truth: str
    kind: Kind
    checks: Mapping[str, Any]


class Problems:
    """What grading needs of the problems of a file.

    Args:
        folder: Folder with clean.parquet. Problems without a kind are of math.
        kept: Gets the problems' checks, which may have gigabytes; None: they are not read.

    Raises:
        StageError: A problem has two different rows.
    """

    def __init__(self, folder: Path, kept: KeptChecks | None = None) -> None:
        self._kept = kept
        self.truths: dict[str, str | None] = {}
        self._rest: dict[str, tuple[str, str]] = {}
        """problem_id -> text and kind."""
        file = folder / "clean.parquet"
        if not file.is_file():
            raise StageError(
                f"{folder}: no clean.parquet. Let the input problems come from a stage that writes "
                "it, e.g. pass_rate or contamination."
            )
        self._read(file)

    def question(self, problem: str) -> Question:
        """Return what grading needs of a problem.

        Raises:
            StageError: The problem is not in clean.parquet, its kind is unknown, or its checks are
                no JSON object.
        """
        kind, (text, _) = self.kind(problem), self._rest[problem]
        checks = self._kept.of(problem) if self._kept else ""
        return Question(text, self.truths[problem] or "", kind, read_checks(problem, checks))

    def text(self, problem: str) -> str:
        """Return a problem's text."""
        return self._rest[problem][0]

    def kind(self, problem: str) -> Kind:
        """Return a problem's kind; errors as in question."""
        _, kind = value_of(problem, self._rest)
        if kind and kind not in KINDS:
            raise StageError(
                f"problem {problem} has the kind {kind!r}, expected one of {', '.join(KINDS)}."
                f"{nearest(kind, KINDS)} Convert its source again; convert.kind sets the kind."
            )
        return kind or "math"

    def _read(self, file: Path) -> None:
        """Read the problems; of equal rows the first counts.

        Raises:
            StageError: Two rows of one problem would be graded differently.
        """
        left_out = () if self._kept else ("checks",)
        wanted = [name for name in _PROBLEM_COLUMNS if name not in left_out]
        here = open_parquet(file).schema_arrow.names
        for batch in record_batches(file, [name for name in wanted if name in here]):
            for row in batch.to_pylist():
                name, truth = row["problem_id"], row.get("ground_truth")
                rest = row.get("problem") or "", row.get("kind") or ""
                checks = row.get("checks") or ""
                if name not in self.truths:
                    self.truths[name], self._rest[name] = truth, rest
                    if self._kept:
                        self._kept.keep(name, checks)
                elif (self.truths[name], self._rest[name][1]) != (truth, rest[1]) or (
                    self._kept and self._kept.of(name) != checks
                ):
                    raise StageError(
                        f"{file}: problem {name} occurs twice, with another ground truth, kind or "
                        "checks. The stages `unique` and `mix` keep one row per problem: run one "
                        "of them first."
                    )


class Responses:
    """A folder of responses, with the ground truths of their problems.

    Args:
        folder: Folder with responses/*.parquet.
        problems: As in Problems.
        kept: As in Problems.

    Raises:
        StageError: There are no responses, or a problem has two different rows.
    """

    def __init__(self, folder: Path, problems: Path, kept: KeptChecks | None = None) -> None:
        self.files = sorted((folder / "responses").glob("*.parquet"))
        if not self.files:
            raise StageError(f"{folder}: no responses/*.parquet. Run the stage `sample` first.")
        self.problems = Problems(problems, kept)
        self.truths = self.problems.truths
        self.question = self.problems.question
        self.total: int = sum(open_parquet(file).metadata.num_rows for file in self.files)
        if not self.total:
            raise StageError(f"{folder}: no response in it. Check the stage that wrote it.")

    def count_by(self, group: Callable[[Kind], str]) -> Counter[str]:
        """Count the responses that came, by a group of each problem's kind.

        Raises:
            StageError: As in question; also for a problem without a response that came.
        """
        groups: dict[str, str] = {}
        counted: Counter[str] = Counter()
        for batch in self.batches(["problem_id", "finish_reason"]):
            for problem, reason in pairs(batch, "problem_id", "finish_reason"):
                if problem not in groups:
                    groups[problem] = group(self.problems.kind(problem))
                counted[groups[problem]] += reason not in FAILED
        return counted

    def methods(self, kinds: Mapping[Kind, str]) -> set[str]:
        """Return how the problems that have responses are graded, by kind -> method."""
        return set(self.count_by(lambda kind: kinds[kind]))

    def with_questions(self) -> Iterator[list[tuple[dict[str, Any], Question]]]:
        """Yield lists of at most 256 pairs (response, question); errors as in question."""
        last: tuple[str, Question] | None = None
        for batch in self.batches(_READ_COLUMNS):
            pairs = []
            for record in batch.to_pylist():
                name = record["problem_id"]
                # A problem's responses come one after the other, and its tests may be large.
                if last is None or last[0] != name:
                    last = (name, self.question(name))
                pairs.append((record, last[1]))
            yield pairs

    def batches(self, columns: list[str] | None = None) -> Iterator[Any]:
        """Yield Arrow batches of at most 256 rows from all files; ``columns`` None: all columns."""
        for file in self.files:
            yield from fixed_batches(file, _BATCH_ROWS, columns)


def value_of(problem: str, values: Mapping[str, Any]) -> Any:
    """Return a problem's value from ``values``, a result of column_of_problems.

    Raises:
        StageError: The problem is not in clean.parquet.
    """
    if problem not in values:
        raise StageError(
            f"problem {problem} has responses but is not in clean.parquet: it was removed, or "
            "never checked. Use the problems that were sampled, or sample those that the "
            "contamination stage kept."
        )
    return values[problem]


def truth_of(record: Mapping[str, Any], truths: Mapping[str, str | None]) -> str:
    """Return the ground truth of a response's problem.

    Raises:
        StageError: The problem is not in clean.parquet, or has no ground truth.
    """
    truth = value_of(record["problem_id"], truths)
    if truth is None or not truth.strip():
        raise StageError(
            f"problem {record['problem_id']} has no ground truth, so its responses cannot be "
            "graded. The stage `unique` drops such problems: run it on these rows."
        )
    return truth
