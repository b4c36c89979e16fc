"""Opens everything that the rounds of a stage ``rl`` need, and runs them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.inference.dialogue import Dialogue
from pcl_reasoner.rl.artifact import write_artifact
from pcl_reasoner.rl.hand_over import HandOver
from pcl_reasoner.rl.loop import InRound, Loop
from pcl_reasoner.rl.training import Training
from pcl_reasoner.rounds.config import RlConfig
from pcl_reasoner.rounds.grading import Graders
from pcl_reasoner.rounds.making import Sampler
from pcl_reasoner.rounds.pool import Pool, check_apart, read_held_out, read_pool
from pcl_reasoner.sample.generate import log_beside
from pcl_reasoner.verifiers.kept_checks import KeptChecks


def train_rounds(
    config: RlConfig,
    inputs: Mapping[str, Path],
    output: Path,
    context: StageContext,
    kept: KeptChecks,
) -> None:
    """Run all rounds, and write the artifact.

    Args:
        config: The stage's settings.
        inputs: As in `stage.rl`.
        output: The stage's folder.
        context: As in `stage.rl`.
        kept: Gets the problems' checks.

    Raises:
        StageError: As in `stage.rl`.
    """
    policy = inputs["policy"]
    dialogue = Dialogue(policy, config)
    pool, held_out = _pools(config, inputs, kept, dialogue)
    kinds = {*pool.kinds(), *(held_out.kinds() if held_out else ())}
    weights = HandOver(output, policy, config, context.warn)
    progress = InRound(context.progress, config.max_rounds)
    served = config.serves_on(context.placement)
    inside = replace(context, progress=progress, placement=served)
    with ExitStack() as stack:
        log = log_beside(output, "reward_model")
        model = inputs.get("reward_model")
        graders = stack.enter_context(Graders(config.grade, kinds, model, inside, log))
        training = Training(config, inputs, output, context, weights.discard)
        stack.enter_context(training)
        sampler = stack.enter_context(opened(config, dialogue, pool, held_out, inside, output))
        loop = Loop(
            config,
            output,
            progress,
            pool,
            held_out,
            sampler,
            graders,
            training,
            weights,
            dialogue.pad_id,
        )
        end = loop.run()
    write_artifact(config, policy, output, weights, end)


def _pools(
    config: RlConfig, inputs: Mapping[str, Path], kept: KeptChecks, dialogue: Dialogue
) -> tuple[Pool, Pool | None]:
    """Read the problems to train on, and those that are held out."""
    pool = read_pool(inputs["problems"], kept, dialogue, config)
    if "held_out" not in inputs:
        return pool, None
    held_out = read_held_out(inputs["held_out"], dialogue, config)
    check_apart(pool, held_out)
    return pool, held_out


@contextmanager
def opened(
    config: RlConfig,
    dialogue: Dialogue,
    pool: Pool,
    held_out: Pool | None,
    context: StageContext,
    output: Path,
) -> Iterator[Sampler]:
    """Open what draws responses: the local sampler, or servers.

    Args:
        config: The stage's settings.
        dialogue: The policy's tokenizer and template.
        pool: The problems to train on.
        held_out: The held-out problems.
        context: The stage's context; its placement is that of the servers.
        output: The stage's folder; the servers' output is logged beside it.
    """
    if config.engine == "server":
        from pcl_reasoner.rounds.server_sampler import ServerSampler

        with ServerSampler(dialogue, context, log_beside(output, "server")) as servers:
            yield servers
        return
    from pcl_reasoner.sample.local import LocalDrawer, problems_in

    prompts = [*pool.prompts.values(), *(held_out.prompts.values() if held_out else ())]
    rows = min(config.batch, config.responses)
    counts = [config.n, config.probe.n] if held_out else [config.n]
    problems = max(problems_in(rows, n) for n in counts)
    yield LocalDrawer(dialogue, prompts, rows, problems, context.progress)
