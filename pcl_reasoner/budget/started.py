"""The starts of servers in a recipe: which stages start them, and how many bytes they read."""

from __future__ import annotations

from collections.abc import Iterator

from pcl_reasoner.budget.served_model import served_model
from pcl_reasoner.core.serving import SERVERS
from pcl_reasoner.estimate.server_starts import Start
from pcl_reasoner.estimate.training_size import Training
from pcl_reasoner.grade.problem_kinds import needs_of
from pcl_reasoner.prove.config import ProveConfig
from pcl_reasoner.rounds.config import RlConfig
from pcl_reasoner.runner.finished import PlannedInput
from pcl_reasoner.runner.plan import Plan

EXPORTED_BYTES = 4
"""Bytes per weight of an exported folder: float32."""


def server_starts(plan: Plan, trained: Training, policy: PlannedInput) -> Iterator[Start]:
    """Yield the starts of a plan's recipe; those of a stage ``rl`` are parts of its rounds.

    Args:
        plan: The plan.
        trained: The training of the plan: the shape of what stages export.
        policy: The weights that it starts from.
    """
    for planned in plan.stages:
        config = planned.spec.config
        if planned.recipe is not plan.recipe or isinstance(config, RlConfig):
            continue
        placement = config.serves_on(planned.recipe.launch.placement)
        for needs in needs_of(plan, planned):
            serving = placement.serving_of(needs.kind)
            model = served_model(planned, needs.role, trained, policy)
            if serving is None or model is None:
                continue
            given = planned.inputs.get(needs.role)
            is_export = given is not None and not given.is_source
            size = model.stored * (EXPORTED_BYTES if is_export else model.weight_bytes)
            own = EXPORTED_BYTES * model.stored if isinstance(config, ProveConfig) else 0.0
            of = "" if needs.kind == "sampling" else f": {SERVERS[needs.kind].model}"
            stage = f"{planned.title}{of}"
            yield Start(stage, planned.title, size, serving.servers, is_export, own)
