"""The work of the servers that a recipe's stages ask, and the number of these servers.

    v15_opg/sample    draws   48 512 responses of 32 000 tokens      from 16 servers of 8 devices
    …/perplexity      reads   120 000 responses of 6 554 tokens      on the same servers
    …/grade: the judge        replies to 48 512 questions            on the judge's servers

The third model, which ``revise`` asks, is on nobody's devices here: its work is not estimated. Nor
is the judge's second opinion in ``contamination``: how many pairs are close is not known before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pcl_reasoner.budget.response_counts import ASSUMED_SHARE, PROMPT_TOKENS, Counted, Responses
from pcl_reasoner.contamination.config import ContaminationConfig
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.serving import SERVERS, ServerKind, Serving
from pcl_reasoner.core.stage import ServerNeeds, StageConfig
from pcl_reasoner.estimate.data_size import OfRecipe
from pcl_reasoner.estimate.serving_estimate import Workload
from pcl_reasoner.grade.config import GradeConfig
from pcl_reasoner.grade.problem_kinds import needs_of
from pcl_reasoner.inference.settings import SamplingConfig
from pcl_reasoner.perplexity.config import PerplexityConfig
from pcl_reasoner.prove.config import ProveConfig
from pcl_reasoner.rounds.config import RlConfig
from pcl_reasoner.runner.plan import Plan, PlannedStage
from pcl_reasoner.runner.stage_spec import StageSpec

NOT_ESTIMATED = (ContaminationConfig, ProveConfig)
"""Stages that ask servers little: the judge about close pairs, and the policy for a proof."""
ANSWER_TOKENS = 500
"""Assumed tokens of a response after its think part, which is what a reward model reads."""
ASSUMPTIONS = (
    f"assumed of servers: bfloat16, {PROMPT_TOKENS} tokens per prompt, servers that are always "
    "full (in fact the last long responses of a stage run on emptier servers), no time for "
    "collectives, scheduling or shared prefixes"
)
"""Line of the report with the assumptions for every stage."""


NOT_COUNTED = (
    "responses: the recipe publishes no number; give the number of problems with --problems"
)


@dataclass(frozen=True)
class Asked:
    """What one stage asks of one kind of servers.

    Args:
        planned: The stage.
        needs: What the servers must offer.
        workload: The work; 0 responses if their number is not known.
    """

    planned: PlannedStage
    needs: ServerNeeds
    workload: Workload


def asked_of_servers(plan: Plan, responses: Responses) -> list[Asked]:
    """Collect what the stages of a plan's recipe ask of servers with devices.

    Args:
        plan: The plan; stages of other recipes are left out.
        responses: Counts the responses.
    """
    return [
        _asked(planned, needs, responses)
        for planned in plan.stages
        if planned.recipe is plan.recipe and not isinstance(planned.spec.config, NOT_ESTIMATED)
        for needs in needs_of(plan, planned)
        if SERVERS[needs.kind].can_start
    ]


def _asked(planned: PlannedStage, needs: ServerNeeds, responses: Responses) -> Asked:
    return Asked(planned, needs, workload_of(planned, needs, responses))


def workload_of(stage: OfRecipe, needs: ServerNeeds, responses: Responses) -> Workload:
    """Return what a stage asks of one kind of servers.

    Args:
        stage: The stage; none of NOT_ESTIMATED.
        needs: What the servers must offer.
        responses: Counts the responses.
    """
    spec = stage.spec
    counted = responses.count(spec) or Counted(0, NOT_COUNTED)
    placement = spec.config.serves_on(stage.recipe.launch.placement)
    servers, note = _servers(placement, needs.kind)
    serving = placement.described(needs.kind)
    tokens, prompt, notes = _lengths(spec, needs, responses)
    config, limit = spec.config, needs.max_model_len - PROMPT_TOKENS
    longest = config.max_new_tokens if isinstance(config, SamplingConfig) else None
    devices = (serving and serving.devices) or placement.server_devices
    stages = _option(serving, "--pipeline-parallel-size", "-pp")
    copies = _option(serving, "--data-parallel-size", "-dp")
    return Workload(
        stage=_title(stage, needs),
        responses=round(counted.number),
        tokens=tokens,
        prompt_tokens=prompt,
        longest=longest or limit,
        servers=servers,
        devices=devices,
        under_way=_under_way(spec, needs),
        notes=(counted.source, *notes, *note),
        stages=stages,
        copies=copies,
        possible=_possible(placement, needs.kind, devices * stages * copies),
    )


def _title(one: OfRecipe, needs: ServerNeeds) -> str:
    """The stage; of ``rl`` a round; for other servers than the policy's, also what they serve."""
    of_round = ", a round" if isinstance(one.spec.config, RlConfig) else ""
    stage = f"{one.recipe.name}/{one.spec.name}{of_round}"
    return stage if needs.kind == "sampling" else f"{stage}: {SERVERS[needs.kind].model}"


def _grading(config: StageConfig) -> GradeConfig | None:
    """Return how a stage grades; None if it does not."""
    graded = config.grade if isinstance(config, RlConfig) else config
    return graded if isinstance(graded, GradeConfig) else None


def _lengths(
    spec: StageSpec, needs: ServerNeeds, responses: Responses
) -> tuple[float, float, Iterator[str]]:
    """(tokens that are drawn per response, tokens that are read, their sources)."""
    config, mean, grading = spec.config, responses.mean_tokens(spec), _grading(spec.config)
    if isinstance(config, SamplingConfig) and needs.kind == "sampling":
        return mean.number, PROMPT_TOKENS, _told("tokens per response", mean)
    if grading and needs.kind == "judging":
        drawn = ASSUMED_SHARE * grading.judge_max_new_tokens
        reply = Counted(drawn, f"ASSUMED, {ASSUMED_SHARE:.0%} of the longest")
        return drawn, PROMPT_TOKENS + grading.last_tokens, _told("tokens per reply", reply)
    if grading and not grading.reward_model.with_thinking:
        mean = Counted(ANSWER_TOKENS, f"ASSUMED, {ANSWER_TOKENS} after the think part")
    return 0.0, PROMPT_TOKENS + mean.number, _told("tokens that are read per response", mean)


def _told(what: str, counted: Counted) -> Iterator[str]:
    yield f"{what}: {counted.source}"


def _under_way(spec: StageSpec, needs: ServerNeeds) -> int:
    """Responses requested at the same time, over all servers."""
    config, grading = spec.config, _grading(spec.config)
    if grading and needs.kind != "sampling":
        by_judge = needs.kind == "judging"
        return grading.judge_concurrency if by_judge else grading.reward_model.concurrency
    assert isinstance(config, SamplingConfig | PerplexityConfig)
    # One request draws all n responses of a problem.
    return config.concurrency * (config.n if isinstance(config, SamplingConfig) else 1)


def _servers(placement: Placement, kind: ServerKind) -> tuple[int, list[str]]:
    """(servers, notes): those that the stage starts, else one per URL, else one per host."""
    hosts, serving = len(placement.hosts), placement.described(kind)
    if serving is None:
        return len(placement.urls_of(kind)) or hosts, []
    if hosts == 1:
        return serving.servers, []
    note = f"servers: {serving.servers} on each of {hosts} hosts, as run --start ssh starts them"
    return serving.servers * hosts, [note]


def _possible(placement: Placement, kind: ServerKind, devices: int) -> int:
    """Servers for which the hosts have devices; 0 for servers at URLs, which run elsewhere."""
    if placement.urls_of(kind):
        return 0
    return len(placement.hosts) * (placement.devices_per_host // devices)


def _option(serving: Serving | None, *names: str) -> int:
    """The number that follows one of these options of a server; 1 without them."""
    arguments = serving.arguments if serving else []
    words = [part for argument in arguments for part in argument.split("=", 1)]
    numbers = [after for word, after in zip(words, words[1:], strict=False) if word in names]
    return int(numbers[-1]) if numbers and numbers[-1].isdigit() else 1
