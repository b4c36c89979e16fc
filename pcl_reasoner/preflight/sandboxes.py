"""Which stages of a plan certainly run programs, and whether they can have a sandbox here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pcl_reasoner.core.stage import StageConfig
    from pcl_reasoner.runner.plan import Plan, PlannedStage
    from pcl_reasoner.sandbox.config import SandboxConfig

CODE_FORMATS = (
    *("verifiable", "deepcoder", "taco", "kodcode", "livecodebench", "codeforces", "acecode"),
)
"""Formats of ``convert`` whose problems are all code. AM's own format has both kinds."""


def missing_sandbox(plan: Plan, repeated: Sequence[PlannedStage] = ()) -> list[str]:
    """Return a sentence per sandbox that the stages to run need and that cannot be had here.

    A stage needs one if it certainly runs programs: what a source on the hub has is known only
    when it is read. Such a stage says itself at its start that it has none.

    Args:
        plan: The run.
        repeated: Stages that run although they are done.
    """
    from pcl_reasoner.core.errors import StageError
    from pcl_reasoner.sandbox.opening import choose

    asked: dict[str, tuple[SandboxConfig, PlannedStage, list[str]]] = {}
    for planned in plan.stages:
        if (planned.done and planned not in repeated) or not runs_programs(planned, plan):
            continue
        config = _sandbox_of(planned.spec.config)
        key = f"{config.python} {planned.recipe.launch.placement.sandbox!r}"
        asked.setdefault(key, (config, planned, []))[2].append(planned.title)
    problems = []
    for config, planned, titles in asked.values():
        try:
            choose(config, planned.recipe.launch.placement.sandbox)
        except StageError as error:
            problems.append(f"{', '.join(titles)}: {error}")
    return problems


def _sandbox_of(config: StageConfig) -> SandboxConfig:
    """Return a stage's limits of programs; ``train`` has them in its probe, ``rl`` in ``grade``."""
    part: Any = getattr(config, "grade", None) or getattr(config, "probe", None) or config
    found: SandboxConfig = part.sandbox
    return found


def runs_programs(planned: PlannedStage, plan: Plan) -> bool:
    """Whether a stage certainly runs programs of responses or of the data on this machine."""
    config: Any = planned.spec.config
    match planned.spec.type:
        case "check_tests":
            return True
        case "grade":
            if "python" in config.kinds.values() and config.python.sandboxed:
                return True
            return config.kinds.get("code") == "tests" and _has_code(planned, "problems", plan)
        case "rl":
            trained = config.kinds is None or "code" in config.kinds
            tests = config.grade.kinds.get("code") == "tests"
            return trained and tests and _has_code(planned, "problems", plan)
        case "evaluate":
            return any(map(_is_coded_benchmark, _paths(planned, "benchmark")))
        case "train" if planned.recipe.launch.placement.hosts == ["localhost"]:
            paths = [] if config.probe is None else _paths(planned, "probe")
            return any(_is_coded_probe(path, config.probe.problems) for path in paths)
    return False


def _paths(planned: PlannedStage, role: str) -> list[Path]:
    """Return the inputs of a role, as far as they exist already."""
    paths = [item.path for name, item in planned.inputs.items() if name.partition(".")[0] == role]
    return [path for path in paths if path.exists()]


def _has_code(planned: PlannedStage, role: str, plan: Plan) -> bool:
    """Whether the problems that a stage reads come from a format of code, or were tested."""
    by_title = {one.title: one for one in plan.stages}
    waiting = [item.origin for name, item in planned.inputs.items() if name == role]
    for origin in waiting:  # the list grows while it is walked
        stage = by_title.get(origin)
        if stage is None:
            continue
        config: Any = stage.spec.config
        if stage.spec.type == "check_tests":
            return True
        if stage.spec.type == "convert" and (
            config.kind == "code" or (config.kind is None and config.format in CODE_FORMATS)
        ):
            return True
        waiting += [item.origin for item in stage.inputs.values() if item.origin not in waiting]
    return False


def _is_coded_benchmark(path: Path) -> bool:
    """Whether the first question of one of a benchmark's files is code."""
    from pcl_reasoner.core.errors import StageError
    from pcl_reasoner.evaluate.benchmark import first_questions

    try:
        return any(question.kind == "code" for question in first_questions(path))
    except (StageError, OSError):
        return False  # the stage says it


def _is_coded_probe(path: Path, number: int) -> bool:
    """Whether one of the problems of a probe is code."""
    from pcl_reasoner.core.errors import StageError
    from pcl_reasoner.verifiers.held_out import read_problems

    try:
        return any(one.get("kind") == "code" for one in read_problems(path, number))
    except (StageError, OSError):
        return False  # the stage says it
