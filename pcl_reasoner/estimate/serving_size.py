"""Number and length of the responses that a recipe's stages draw, and the number of servers.

Numbers come from ``published.funnel`` or benchmark files, lengths from ``published.mean_tokens``:

    mean_tokens: {evaluate: {aime24: 22535, aime25: 25993}}

Missing numbers are assumed, and the report names them.
"""

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from pcl_reasoner.core.schema import Placement
from pcl_reasoner.estimate.data_size import published_counts
from pcl_reasoner.estimate.serving_estimate import Workload
from pcl_reasoner.inference.settings import SamplingConfig
from pcl_reasoner.runner.recipe import Recipe, StageSpec

PROMPT_TOKENS = 200
"""Assumed tokens of a problem with its system turn."""
QUESTIONS = 30
"""Assumed number of questions, as in one year of AIME, if a benchmark's file is missing."""
ASSUMED_SHARE = 0.2
"""Assumed mean response length, as a share of the longest, if no mean is published."""
ASSUMPTIONS = (
    f"assumed of sampling: bfloat16, {PROMPT_TOKENS} tokens per prompt, servers that are always "
    "full (in fact the last long responses of a stage run on emptier servers), no time for "
    "collectives, scheduling or shared prefixes"
)
"""Line of the report with the assumptions for every stage."""


def workloads(recipe: Recipe, response_tokens: float | None = None) -> list[Workload]:
    """Collect the stages that draw responses from servers.

    A sampling stage without a published number of responses is left out.

    Args:
        recipe: The recipe.
        response_tokens: The user's mean tokens per response; None: the published or assumed mean.
    """
    found = (
        _workload(recipe, spec, spec.config, response_tokens)
        for spec in recipe.stages.values()
        if isinstance(spec.config, SamplingConfig) and spec.config.engine == "server"
    )
    return [workload for workload in found if workload is not None]


def _workload(
    recipe: Recipe, spec: StageSpec, config: SamplingConfig, response_tokens: float | None
) -> Workload | None:
    counts = published_counts(recipe.published)
    if spec.inputs.get("benchmark"):
        responses, origin = _evaluated(recipe, spec, config)
    elif spec.name in counts:
        responses, origin = counts[spec.name], "responses: published"
    else:
        return None
    tokens, length = _tokens(recipe.published, spec, config, response_tokens)
    servers, devices = _servers(recipe.launch.placement)
    return Workload(
        stage=f"{recipe.name}/{spec.name}",
        responses=responses,
        tokens=tokens,
        prompt_tokens=PROMPT_TOKENS,
        longest=config.max_new_tokens or config.max_model_len - PROMPT_TOKENS,
        servers=servers,
        devices=devices,
        # One request draws all n responses of a problem.
        under_way=config.concurrency * config.n,
        notes=(origin, f"tokens per response: {length}"),
    )


def _evaluated(recipe: Recipe, spec: StageSpec, config: SamplingConfig) -> tuple[int, str]:
    """(number of responses, its source); 30 questions are assumed if a benchmark has no file."""
    counts, assumed = 0, []
    for name in spec.inputs["benchmark"]:
        source = recipe.sources.get(name)
        given = source.path if source and not source.stage else None
        path = Path(str(given or "")).expanduser()
        if path.suffix == ".jsonl" and path.is_file():
            counts += sum(bool(line.strip()) for line in path.open(encoding="utf-8"))
        else:
            counts += QUESTIONS
            assumed.append(name)
    note = f"responses: {counts} questions x {config.n}"
    if assumed:
        note += f" ({', '.join(assumed)}: no file here, {QUESTIONS} questions ASSUMED)"
    return counts * config.n, note


def _tokens(
    published: Mapping[str, Any], spec: StageSpec, config: SamplingConfig, given: float | None
) -> tuple[float, str]:
    """Mean tokens of a response, and the source of this number."""
    if given:
        return given, "given"
    means: Mapping[str, Mapping[str, float]] = published.get("mean_tokens") or {}
    if spec.name in means:
        return fmean(means[spec.name].values()), "published"
    if means:
        other, lengths = next(iter(means.items()))
        return fmean(lengths.values()), f"ASSUMED as in {other}, which is published"
    longest = config.max_new_tokens or config.max_model_len
    return ASSUMED_SHARE * longest, f"ASSUMED, {ASSUMED_SHARE:.0%} of the longest"


def _servers(placement: Placement) -> tuple[int, int]:
    """(servers, devices per server): from ``sampling``, else a server per URL, else per host."""
    started = placement.sampling
    if started is not None:
        return started.servers, started.devices or placement.server_devices
    return len(placement.server_urls) or len(placement.hosts), placement.server_devices
