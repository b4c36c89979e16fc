"""Which kinds of problems a recipe can have, and so which servers and sandboxes it needs.

convert_math {format: am_rl}   convert_chat {format: chat}   ->   math, code, chat
grade: {}                      asks the reward model, because there is chat; no judge
"""

from __future__ import annotations

from collections.abc import Mapping

from pcl_reasoner.core.kinds import KINDS, Kind
from pcl_reasoner.core.stage import ServerNeeds
from pcl_reasoner.curate.convert import ConvertConfig
from pcl_reasoner.grade.config import GradeConfig
from pcl_reasoner.runner.plan import Plan, PlannedStage

FORMAT_KINDS: Mapping[str, tuple[Kind, ...]] = {
    "nemotron": ("math",),
    "conversations": ("math",),
    "am_rl": ("math", "code"),
    "verifiable": ("code",),
    "deepcoder": ("code",),
    "taco": ("code",),
    "kodcode": ("code",),
    "livecodebench": ("code",),
    "codeforces": ("code",),
    "acecode": ("code",),
    "ifeval": ("instruction",),
    "chat": ("chat",),
}
"""Format of a published data set -> kinds of its problems, if the recipe sets none."""


def conversions(plan: Plan, planned: PlannedStage) -> list[ConvertConfig]:
    """Return the settings of all stages ``convert`` from which a stage's inputs come."""
    by_folder = {stage.folder: stage for stage in plan.stages}
    stages = [planned]
    # The list grows while it is walked: every stage appends the stages that it reads.
    for stage in stages:
        paths = [item.path for item in stage.inputs.values()]
        before = [by_folder[path] for path in paths if path in by_folder]
        stages += [one for one in before if one not in stages]
    configs = [stage.spec.config for stage in stages]
    return [config for config in configs if isinstance(config, ConvertConfig)]


def kinds_of(plan: Plan, planned: PlannedStage) -> set[Kind]:
    """Return the kinds of problems that can reach a stage: all, if it is not known."""
    found: set[Kind] = set()
    for config in conversions(plan, planned):
        found.update((config.kind,) if config.kind else FORMAT_KINDS[config.format])
    return found or set(KINDS)


def needs_of(plan: Plan, planned: PlannedStage) -> list[ServerNeeds]:
    """Return what servers must offer to a stage, for the kinds of problems that can reach it."""
    config = planned.spec.config
    if isinstance(config, GradeConfig):
        possible = kinds_of(plan, planned)
        kinds = {kind: how for kind, how in config.kinds.items() if kind in possible}
        config = config.model_copy(update={"kinds": kinds})
    return config.servers(planned.inputs)
