"""Lists the servers that a run asks, and what is missing for them; ``run --dry-run`` prints it.

am_thinking_v1/sample_truth asks the policy: 'teacher', context of 32,768 tokens
  weights: deepseek-ai/DeepSeek-R1 at main (source teacher)
  the stage starts 1 server with --tensor-parallel-size 8 from port 8000 on each of 16 hosts …
  on node01: source …/set_env.sh && … exec /opt/vllm/bin/vllm serve …
  and with a second name, teacher@HASH, a hash of the weights when they are there
am_thinking_v1/revise asks the third model: 'o4-mini', context of 40,960 tokens
  https://api.openai.com/v1, with the key in OPENAI_API_KEY, which is NOT SET
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pcl_reasoner.core.schema import Placement
    from pcl_reasoner.core.serving import Serving
    from pcl_reasoner.core.stage import ServerNeeds
    from pcl_reasoner.runner.plan import Plan, PlannedStage


@dataclass(frozen=True)
class Ask:
    """What one stage asks of one kind of servers."""

    planned: PlannedStage
    needs: ServerNeeds

    @property
    def model(self) -> str:
        """What the servers serve, e.g. ``the policy``."""
        from pcl_reasoner.core.serving import SERVERS

        return SERVERS[self.needs.kind].model

    @property
    def weights(self) -> str:
        """Where the weights come from; empty if the recipe does not name them."""
        from pcl_reasoner.budget.served_model import hub_model

        given = self.planned.inputs.get(self.needs.role)
        if given is None or self.needs.kind == "opinion":
            return ""
        source = self.planned.recipe.sources.get(given.origin)
        if source is None:
            return f"of {given.origin}"
        model, found = hub_model(source), f"{source.hub} at {source.revision}"
        size = f", {model.stored * model.weight_bytes / 1e9:,.0f} GB" if model else ""
        return f"{found if source.hub else given.path} (source {given.origin}){size}"


def asks_of(plan: Plan) -> list[Ask]:
    """Collect what the unfinished stages of a plan ask, in the order of the stages."""
    from pcl_reasoner.grade.problem_kinds import needs_of

    stages = [planned for planned in plan.stages if not planned.done]
    return [Ask(planned, needs) for planned in stages for needs in needs_of(plan, planned)]


def server_lines(plan: Plan) -> list[str]:
    """Describe every server that an unfinished stage asks: model, weights, and who starts it."""
    return [line for ask in asks_of(plan) for line in _lines(ask)]


def _lines(ask: Ask) -> Iterator[str]:
    from pcl_reasoner.core.serving import SERVERS

    needs, placement = ask.needs, ask.planned.recipe.launch.placement
    context = f"context of {needs.max_model_len:,} tokens"
    yield f"{ask.planned.title} asks {ask.model}: {needs.name!r}, {context}"
    if ask.weights:
        yield f"  weights: {ask.weights}"
    if serving := placement.serving_of(needs.kind):
        yield from _started(ask, serving)
    for url in placement.urls_of(needs.kind):
        yield f"  {url}{_key(ask, url)}"
    if needs.kind == "opinion" and needs.role in ask.planned.inputs:
        yield "  only what is not recorded (input opinion)"
    elif not serving and not placement.urls_of(needs.kind):
        port, urls = placement.first_port(needs.kind), SERVERS[needs.kind].urls
        yield (
            f"  nobody yet: start them with the commands below, and put http://HOST:{port}/v1 into "
            f"placement.{urls}"
            if ask.weights
            else f"  nobody yet: placement.{urls} is empty"
        )


def _key(ask: Ask, url: str) -> str:
    from pcl_reasoner.core.api_keys import key_in, without_slash

    keys = ask.planned.recipe.launch.placement.api_keys
    variables = {without_slash(named): variable for named, variable in keys.items()}
    variable = variables.get(without_slash(url))
    if variable is None:
        return ", without a key"
    return f", with the key in {variable}{'' if key_in(variable) else ', which is NOT SET'}"


def _started(ask: Ask, serving: Serving) -> Iterator[str]:
    """Say how the stage starts its servers, with the command of the first one."""
    from pcl_reasoner.serving import serve_command

    needs, whole = ask.needs, ask.planned.recipe.launch.placement
    placement = ask.planned.spec.config.serves_on(whole)
    devices = serve_command.devices_each(serving, placement)
    servers = "1 server" if serving.servers == 1 else f"{serving.servers} servers"
    here = len(whole.hosts) == 1
    where = "on this machine"
    if not here:
        port = placement.first_port(needs.kind)
        hosts = _hosts(placement.hosts, len(whole.hosts))
        refused = ask.planned.spec.config.waits_for_runner
        otherwise = "the stage is refused" if refused else "here alone"
        where = f"from port {port} on {hosts} (--start ssh; without it, {otherwise})"
    size = f"--tensor-parallel-size {devices}"
    yield f"  the stage starts {servers} with {size} {where}, by placement.{needs.kind}"
    if needs.role not in ask.planned.inputs:
        return
    if here:
        port = serving.port or placement.first_port(needs.kind)
        words = words_of(ask, serving, placement, port, serve_command.LOCAL_ADDRESS)
        chosen = "" if serving.port else " (a free port is taken)"
        yield f"  here: {shlex.join(words)}{chosen}"
    else:
        host = placement.hosts[0]
        yield f"  on {host}: {remote(ask, serving, placement, host, 0)}"
    if not needs.replaceable:
        # Its hash is not in the command: all weights would have to be read for it.
        name = f"{needs.name}@HASH"
        yield f"  and with a second name, {name}, a hash of the weights when they are there"


def words_of(
    ask: Ask, serving: Serving, placement: Placement, port: int, address: str
) -> list[str]:
    """Return the words of the command that starts a server of the stage."""
    from pcl_reasoner.inference.settings import SamplingConfig
    from pcl_reasoner.serving import serve_command

    needs, path = ask.needs, ask.planned.inputs[ask.needs.role].path
    settings = SamplingConfig(
        served_model=needs.name, max_model_len=needs.max_model_len, template=needs.template
    )
    kind = (needs.kind == "scoring", needs.replaceable)
    return serve_command.command(serving, placement, path, settings, port, address, *kind)


def remote(ask: Ask, serving: Serving, placement: Placement, host: str, index: int) -> str:
    """Return the shell line of a host's server; ``index`` counts its servers from 0."""
    from pcl_reasoner.serving import serve_command

    port = placement.first_port(ask.needs.kind) + index
    words = words_of(ask, serving, placement, port, "0.0.0.0")
    return serve_command.remote_line(serving, placement, words, host, index, port)


def _hosts(names: list[str], number: int) -> str:
    """Describe the hosts of the servers: all of the launch file's, or those of ``rollout``."""
    if len(names) == number:
        return f"each of {number} hosts"
    return f"{', '.join(names)} (placement.rollout)"
