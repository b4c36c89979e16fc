"""Stage ``check_tests``: drops code problems whose own solution fails their tests.

A line of bad_tests.jsonl:

    {"problem_id": "9f0c…", "problem": "Read a number …", "case": 3, "reason": "wrong",
     "text": "7", "passed": 3, "total": 10}

Tests of code datasets are made by machines, and some are wrong. Where the source gives a solution,
it must pass; a problem without one is kept, because nothing can be said about it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pcl_reasoner.core.artifact import atomic_file
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.stage import Counts, StageConfig, StageContext
from pcl_reasoner.curate.parts import problems_file
from pcl_reasoner.revise.problems import CLEAN, TWICE, write_problems
from pcl_reasoner.sandbox.config import SandboxConfig

if TYPE_CHECKING:
    from pcl_reasoner.verifiers.programs import Program

BAD = "bad_tests.jsonl"


class CheckTestsConfig(StageConfig):
    """How the tests of code problems are checked."""

    sandbox: SandboxConfig = SandboxConfig()
    """Limits of the solutions that are tested."""
    without_solution: Literal["keep", "drop"] = "keep"
    """Code problems whose source gives no solution."""


def check_tests(
    config: CheckTestsConfig, inputs: Mapping[str, Path], output: Path, context: StageContext
) -> Counts:
    """Keep the code problems whose own solution passes all tests, and all other problems.

    Args:
        config: Limits, and what happens to problems without a solution.
        inputs: ``problems``.
        output: Gets clean.parquet and bad_tests.jsonl.
        context: ``placement.sandbox`` says where the solutions run.

    Raises:
        StageError: No problem is left, a problem occurs twice, tests cannot be read, or no sandbox
            can be had here.
    """
    from pcl_reasoner.verifiers.logs import TEST_LOG
    from pcl_reasoner.verifiers.programs import test_all

    source = problems_file(inputs["problems"])
    found = _Problems(source)
    tested = test_all(config.sandbox, found.solutions(), found.total, output, context, stop=True)
    bad = {key[0]: one for key, one in tested.results.items() if one.failure is not None}
    dropped = Counter({"bad_tests": len(bad)})
    kept = set(found.texts) - set(bad)
    if config.without_solution == "drop":
        dropped["no_solution"] = len(found.without)
        kept -= found.without
    if not kept:
        raise StageError(
            f"{source}: no problem is left of {len(found.texts)} (dropped: {dict(dropped)}). If "
            "all solutions fail in the same way, the sandbox lacks what they need: set "
            "sandbox.python."
        )
    with atomic_file(output / BAD) as path, path.open("w", encoding="utf-8") as handle:
        for name, one in sorted(bad.items()):
            assert one.failure is not None
            told = {**asdict(one.failure), "passed": one.passed, "total": one.total}
            del told["contended"]
            line = {"problem_id": name, "problem": found.texts[name], **told}
            handle.write(json.dumps(line, ensure_ascii=False) + "\n")
    write_problems(source, output / CLEAN, {}, kept)
    (output / TEST_LOG).unlink(missing_ok=True)
    info = {"solutions": tested.figures, "without_solution": len(found.without)}
    return Counts(
        unit="problems",
        read=len(found.texts),
        kept=len(kept),
        dropped={reason: number for reason, number in sorted(dropped.items()) if number},
        info={**info, "sandbox": tested.described},
    )


class _Problems:
    """The problems of a file: their texts, and the solutions of those that have one.

    Args:
        file: clean.parquet or problems.parquet.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.texts: dict[str, str] = {}
        self.without: set[str] = set()
        """Code problems without a solution."""
        self.total = 0
        """Number of solutions."""
        for name, text, kind, checks in self._rows():
            if name in self.texts:
                raise StageError(f"{file}: problem {name} {TWICE}")
            self.texts[name] = text
            if kind == "code" and checks.get("reference"):
                self.total += 1
            elif kind == "code":
                self.without.add(name)

    def _rows(self) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
        from pcl_reasoner.curate.parts import record_batches
        from pcl_reasoner.revise.problems import column_names
        from pcl_reasoner.verifiers.checked import read_checks

        names = ["problem_id", "problem", "kind", "checks"]
        column_names(self.file, names)
        for batch in record_batches(self.file, names):
            for row in batch.to_pylist():
                checks = read_checks(row["problem_id"], row["checks"])
                yield row["problem_id"], row["problem"], row["kind"] or "math", checks

    def solutions(self) -> Iterator[Program]:
        """Yield the solutions with their tests, read one by one: tests have megabytes."""
        from pcl_reasoner.verifiers.checked import tests_of
        from pcl_reasoner.verifiers.programs import Program

        for name, _, kind, checks in self._rows():
            if kind == "code" and checks.get("reference"):
                yield Program((name, 0), checks["reference"], tests_of(name, kind, checks))
