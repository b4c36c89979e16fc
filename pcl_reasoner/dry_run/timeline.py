"""Every command of every host, in the order in which a run starts them.

v15_opg/sample   node01  server 1 of 2 of the policy   source …/set_env.sh && … vllm serve …
v15_opg/sample   node01  server 2 of 2 of the policy   …
v15_opg/grade    node01  server 1 of 2 of the judge    …
v15_opg/train    node01  ranks 0 to 15                 … msrun …
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pcl_reasoner.dry_run.server_list import Ask
    from pcl_reasoner.runner.plan import Plan


@dataclass(frozen=True)
class HostLine:
    """One command of one host.

    Args:
        stage: The stage, e.g. ``v15_opg/sample``.
        host: The host.
        purpose: What the command starts, and who starts it.
        command: The shell line.
    """

    stage: str
    host: str
    purpose: str
    command: str


def timeline(plan: Plan) -> Iterator[HostLine]:
    """Yield the commands of the unfinished stages, in the order in which a run starts them.

    A stage's servers are started before its training. With several hosts, ``run --start ssh``
    starts all that a stage starts itself.
    """
    from pcl_reasoner.dry_run.server_list import asks_of
    from pcl_reasoner.hosts.commands import host_commands

    asks = asks_of(plan)
    for planned in plan.stages:
        if planned.done:
            continue
        for ask in asks:
            if ask.planned is planned:
                yield from _servers(ask)
        # Commands of servers come before those of training here, too.
        for group in sorted(host_commands(planned), key=lambda group: group.needs is None):
            for one in group.commands:
                purpose = one.purpose.removeprefix(f"{planned.title}: ")
                yield HostLine(planned.title, one.host, purpose, one.line)


def _servers(ask: Ask) -> Iterator[HostLine]:
    """Yield the servers that a stage starts itself, host by host, as it starts them."""
    from pcl_reasoner.dry_run.server_list import remote, words_of
    from pcl_reasoner.serving import serve_command

    config, whole = ask.planned.spec.config, ask.planned.recipe.launch.placement
    placement = config.serves_on(whole)
    serving = placement.serving_of(ask.needs.kind)
    if serving is None or ask.needs.role not in ask.planned.inputs:
        return
    several = len(whole.hosts) > 1
    for host in placement.hosts:
        for index in range(serving.servers):
            number = f"server {index + 1} of {serving.servers}" if serving.servers > 1 else "server"
            purpose = f"{number} of {ask.model}; the stage starts it"
            if several:
                line = remote(ask, serving, placement, host, index)
                purpose = f"{number} of {ask.model}; run --start ssh starts it"
            else:
                port = placement.first_port(ask.needs.kind) + index
                words = words_of(ask, serving, placement, port, serve_command.LOCAL_ADDRESS)
                here = serve_command.local_command(serving, placement, words, index, port)
                line = shlex.join(here)
                purpose += "" if serving.port else ", on a free port"
            yield HostLine(ask.planned.title, host, purpose, line)
