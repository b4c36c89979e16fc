"""Number and length of the responses that a recipe's stages draw, and the number of servers.

Read from the recipe's own numbers: ``published.funnel`` (responses) and ``published.mean_tokens``

    mean_tokens: {evaluate: {aime24: 22535, aime25: 25993}}

Missing numbers are assumed, and the report names them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pcl_reasoner.core.schema import Placement
from pcl_reasoner.estimate.data_size import published_counts
from pcl_reasoner.estimate.serving_estimate import Serving
from pcl_reasoner.evaluate.config import EvaluateConfig
from pcl_reasoner.inference.settings import SamplingConfig
from pcl_reasoner.runner.recipe import Recipe, StageSpec

PROMPT_TOKENS = 200
"""Assumed tokens of a problem with its system turn."""
QUESTIONS = 30
"""Assumed questions of a benchmark whose file is not on this machine: one year of AIME."""
ASSUMED_SHARE = 0.2
"""Assumed mean response length, as a share of the longest, if no mean is published."""


def servings(recipe: Recipe, response_tokens: float | None = None) -> list[Serving]:
    """Collect the stages that draw responses from servers.

    A sampling stage without a published number of responses is left out.

    Args:
        recipe: The recipe.
        response_tokens: The user's mean tokens per response, in place of the published or assumed.
    """
    found = []
    for spec in recipe.stages.values():
        config = spec.config
        if isinstance(config, SamplingConfig) and config.engine == "server":
            one = _serving(recipe, spec, config, response_tokens)
            found += [one] if one else []
    return found


def _serving(
    recipe: Recipe, spec: StageSpec, config: SamplingConfig, given: float | None
) -> Serving | None:
    evaluated = isinstance(config, EvaluateConfig)
    counted = _asked(recipe, spec, config) if evaluated else _sampled(recipe, spec)
    if counted is None:
        return None
    responses, origin = counted
    tokens, length = (given, "given") if given else _tokens(recipe.published, spec, config)
    servers, devices = _servers(recipe.launch.placement)
    return Serving(
        stage=f"{recipe.name}/{spec.name}",
        responses=responses,
        tokens=tokens,
        prompt_tokens=PROMPT_TOKENS,
        longest=config.max_new_tokens or config.max_model_len - PROMPT_TOKENS,
        servers=servers,
        devices=devices,
        # One request draws all n responses of a problem.
        under_way=config.concurrency * config.n,
        notes=(origin, f"tokens of a response: {length}"),
    )


def _sampled(recipe: Recipe, spec: StageSpec) -> tuple[int, str] | None:
    known = published_counts(recipe.published).get(spec.name)
    return None if known is None else (known, "responses: published")


def _asked(recipe: Recipe, spec: StageSpec, config: SamplingConfig) -> tuple[int, str]:
    """n responses per question; questions are counted if their file is on this machine."""
    counts, assumed = 0, []
    for name in spec.inputs["benchmark"]:
        source = recipe.sources.get(name)
        path = Path(str(source.path)).expanduser() if source and source.path else None
        if path and path.suffix == ".jsonl" and path.is_file() and not (source and source.stage):
            counts += sum(bool(line.strip()) for line in path.open(encoding="utf-8"))
        else:
            counts += QUESTIONS
            assumed.append(name)
    said = f"responses: {counts} questions x {config.n}"
    if assumed:
        said += f" ({', '.join(assumed)}: not here, {QUESTIONS} questions ASSUMED)"
    return counts * config.n, said


def _tokens(
    published: Mapping[str, Any], spec: StageSpec, config: SamplingConfig
) -> tuple[float, str]:
    means: Mapping[str, Mapping[str, float]] = published.get("mean_tokens") or {}
    if spec.name in means:
        return _mean(means[spec.name]), "published"
    if means:
        other = next(iter(means))
        return _mean(means[other]), f"ASSUMED as in {other}, which is published"
    longest = config.max_new_tokens or config.max_model_len
    return ASSUMED_SHARE * longest, f"ASSUMED, {ASSUMED_SHARE:.0%} of the longest"


def _mean(of: Mapping[str, float]) -> float:
    return sum(of.values()) / len(of)


def _servers(placement: Placement) -> tuple[int, int]:
    """(servers, devices per server): started by a stage, named by URL, or one server per host."""
    started = placement.sampling
    if started is not None:
        return started.servers, started.devices or placement.server_devices
    return len(placement.server_urls) or len(placement.hosts), placement.server_devices


def assumptions() -> Iterator[str]:
    """Describe the assumptions that hold for every stage."""
    yield (
        f"assumed of sampling: bfloat16, {PROMPT_TOKENS} tokens a prompt, every place taken at all "
        "times (the last long responses of a stage run on with places empty), no time for "
        "collectives, scheduling or shared prefixes"
    )
