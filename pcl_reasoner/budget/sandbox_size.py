"""The programs that a recipe runs in sandboxes: where, how many, and for how long.

am_thinking_v1/evaluate: 33,760 programs with all tests of their problems, by 64 workers:
from 0.0 h (ten small tests each) to 0.9 h (every program ends at a test that reaches 6 s)
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from pcl_reasoner.budget.response_counts import Counted, Responses, benchmark_file, questions
from pcl_reasoner.budget.served_model import hub_facts
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.stage import StageConfig
from pcl_reasoner.estimate.layouts import SECONDS_PER_HOUR
from pcl_reasoner.grade.config import GradeConfig
from pcl_reasoner.grade.problem_kinds import conversions, kinds_of
from pcl_reasoner.inference.settings import SamplingConfig
from pcl_reasoner.revise.check_tests import CheckTestsConfig
from pcl_reasoner.rounds.config import RlConfig
from pcl_reasoner.runner.plan import Plan, PlannedStage
from pcl_reasoner.runner.recipe import Recipe
from pcl_reasoner.sandbox.config import SandboxConfig
from pcl_reasoner.sandbox.opening import HTTP_WORKERS

START_SECONDS = 0.02
"""Assumed processor seconds to start the sandboxes of one program."""
TEST_SECONDS = 0.002
"""Assumed processor seconds of a small test; with START_SECONDS, ten tests take 0.04 s, as
benchmarks/sandbox_speed.py has it."""
SMALL_TESTS = 10
"""Tests per program that are assumed where their number is not limited."""
_WITH_TESTS = ('"question_content"', '"tests"')
"""What a line of a benchmark's file has if its question has tests."""


@dataclass(frozen=True)
class Tested:
    """The programs that one stage runs.

    Args:
        stage: The recipe and the stage.
        programs: The largest number of programs; None if it is not known.
        source: Where this number is from.
        tests: Largest number of tests per program; None: all tests of its problem.
        seconds: Limit of time of one test.
    """

    stage: str
    programs: int | None
    source: str
    tests: int | None
    seconds: float


def tested(plan: Plan, responses: Responses) -> list[Tested]:
    """Collect the stages of a plan's recipe that run programs."""
    found = []
    for planned in plan.stages:
        limits = _limits(planned.spec.config)
        if planned.recipe is not plan.recipe or limits is None:
            continue
        if counted := _programs(plan, planned, responses):
            programs, seconds = round(counted.number) or None, limits.seconds
            tests = _most_tests(plan, planned)
            found.append(Tested(planned.title, programs, counted.source, tests, seconds))
    return found


def _limits(config: StageConfig) -> SandboxConfig | None:
    """Return the limits of a stage's programs; None if it runs none."""
    graded = config.grade if isinstance(config, RlConfig) else config
    found = getattr(graded, "sandbox", None)
    return found if isinstance(found, SandboxConfig) else None


def _programs(plan: Plan, planned: PlannedStage, responses: Responses) -> Counted | None:
    """The programs that a stage runs; a number of 0 if it is not known, None if it runs none."""
    config, possible = planned.spec.config, kinds_of(plan, planned)
    if isinstance(config, RlConfig):
        by_tests = config.grade.kinds.get("code") == "tests"
        trained = "code" in possible and (config.kinds is None or "code" in config.kinds)
        source = "a round, if all its problems are of code"
        return Counted(config.responses, source) if by_tests and trained else None
    if isinstance(config, SamplingConfig):  # an evaluation
        names = planned.spec.inputs["benchmark"]
        with_tests = [name for name in names if has_tests(plan.recipe, name)]
        number = sum(questions(plan.recipe, name) or 0 for name in with_tests) * config.n
        source = f"{', '.join(with_tests)} x {config.n}"
        return Counted(number, source) if with_tests else None
    if isinstance(config, CheckTestsConfig):
        source = "at most one solution per problem of code"
        return Counted(responses.problems or 0, source) if "code" in possible else None
    kinds = config.kinds if isinstance(config, GradeConfig) else {}
    if not any(how == "tests" and kind in possible for kind, how in kinds.items()):
        return None
    counted = responses.count(planned.spec)
    return Counted(counted.number if counted else 0, "at most the responses to problems of code")


def has_tests(recipe: Recipe, name: str) -> bool:
    """Return whether a benchmark's questions have tests, as far as that is known here."""
    if file := benchmark_file(recipe, name):
        with file.open(encoding="utf-8") as lines:
            first = next(lines, "")
        return any(mark in first for mark in _WITH_TESTS)
    source = recipe.sources.get(name)
    facts = hub_facts("benchmarks").get(str(source and source.hub)) or {}
    return bool(facts.get("tests"))


def _most_tests(plan: Plan, planned: PlannedStage) -> int | None:
    config = planned.spec.config
    if isinstance(config, SamplingConfig) and not isinstance(config, RlConfig):
        return None
    return max((one.max_tests for one in conversions(plan, planned)), default=None)


def place(placement: Placement) -> tuple[str, int]:
    """(where programs run, programs that run at a time)."""
    sandbox = placement.sandbox
    if sandbox.engine == "http":
        return f"by the services {', '.join(sandbox.urls)}", sandbox.workers or HTTP_WORKERS
    engine = "bubblewrap or unshare" if sandbox.engine == "auto" else sandbox.engine
    here = f"with {engine} on the machine of pclr-ms run, not on the launch file's hosts"
    return here, sandbox.workers or len(os.sched_getaffinity(0))


def lines(found: list[Tested], placement: Placement) -> list[str]:
    """Describe where programs run, how many there are, and their hours; empty without programs."""
    if not found:
        return []
    where, workers = place(placement)
    return [
        f"sandboxes: programs of responses run {where}; {workers} at a time, one per processor of "
        "this machine unless placement.sandbox.workers says otherwise",
        *(f"  {line}" for one in found for line in _lines(one, workers)),
    ]


def _lines(one: Tested, workers: int) -> Iterator[str]:
    tests = "all tests of its problem" if one.tests is None else f"at most {one.tests} tests"
    if one.programs is None:
        yield f"{one.stage}: {one.source}, each with {tests}; their number is not known"
        return
    fewest, most = (seconds / SECONDS_PER_HOUR for seconds in program_seconds(one, workers))
    yield (
        f"{one.stage}: {one.programs:,} programs ({one.source}), each with {tests}: from "
        f"{fewest:.1f} h (ASSUMED: {one.tests or SMALL_TESTS} small tests each) to {most:.1f} h "
        f"(every program ends at a test that reaches its limit of {one.seconds:g} s)"
    )


def program_seconds(one: Tested, workers: int) -> tuple[float, float]:
    """(fewest, most) seconds that a stage's programs take; 0 if their number is not known."""
    programs = one.programs or 0
    small = START_SECONDS + (one.tests or SMALL_TESTS) * TEST_SECONDS
    return programs * small / workers, programs * one.seconds / workers
