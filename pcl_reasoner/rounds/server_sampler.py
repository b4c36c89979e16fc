"""Draws a round's responses from vLLM servers, whose weights are replaced between rounds.

with ServerSampler(dialogue, context, log) as sampler:
    sampler.load(policy)                                        # round 0
    sampler.draw(prompts, settings, records, log_probs=True)
    sampler.load(rounds / "00000" / "weights")                  # round 1
    sampler.draw(…)

-> records: {"problem_id": "5c18…", "sample_index": 0, "token_ids": [27, …, 2], …,
             "sampled_log_probs": [-0.41, …, -0.02]}
"""

import asyncio
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.inference.client import Client, named_servers
from pcl_reasoner.inference.dialogue import Dialogue, Problem, Prompt
from pcl_reasoner.inference.response_log import ResponseLog
from pcl_reasoner.inference.server import SupervisedServer, started
from pcl_reasoner.inference.settings import SamplingConfig
from pcl_reasoner.rounds.policy_weights import PolicyWeights

_QUESTION = "Tom has 3 apples. He gets 5 more. How many apples has he now?"
"""The problem of the prompt with which weights are confirmed (policy_weights.py)."""


class ServerSampler:
    """Servers that a stage uses from its beginning to its end, with the policy of the moment.

    It is a context manager. The servers that ``placement.sampling`` describes are started by the
    first call of `load`, with its weights, and stopped at the end; those of
    ``placement.server_urls`` run already.

    Args:
        dialogue: The first policy's tokenizer and template; its settings are those of the servers:
            ``served_model``, ``max_model_len`` and ``template``.
        context: ``placement`` names or describes the servers; receives progress and warnings.
        log: File for the output of servers that are started here.

    Raises:
        StageError: The launch file names no server, or a server's API key is not set.
    """

    def __init__(self, dialogue: Dialogue, context: StageContext, log: Path) -> None:
        self.dialogue, self.context, self.log = dialogue, context, log
        self._urls = named_servers(dialogue.settings, context)
        self._servers: list[SupervisedServer] | None = None
        self._open = ExitStack()
        probe = dialogue.prompt(Problem("", _QUESTION)).ids[: dialogue.settings.max_model_len - 1]
        self._weights = PolicyWeights(dialogue.folder, probe, dialogue.settings, context.warn)

    def __enter__(self) -> Self:
        """Return the sampler; nothing is started yet."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the servers that were started here."""
        self._open.__exit__(kind, error, trace)

    def load(self, folder: Path) -> None:
        """Make a folder's weights the policy. Servers that run get them when `draw` is called.

        Args:
            folder: A complete Hugging Face folder, readable for every server's host under this
                path. It must stay until the next call: a lost server is restarted with it.

        Raises:
            StageError: The folder is incomplete, or has weights of another model; or a server
                cannot be started.
        """
        if not self._weights.load(folder):
            return
        if self._servers is None:
            settings = self.dialogue.settings
            servers = started(self.context, "sampling", folder, settings, self.log, True)
            self._servers = self._open.enter_context(servers)
            return
        for server in self._servers:
            server.model, server.holds = folder, None

    def draw(
        self,
        prompts: list[Prompt],
        settings: SamplingConfig,
        records: ResponseLog,
        log_probs: bool,
    ) -> None:
        """Draw every response that is missing, by the policy of the last `load`.

        No server is asked before it is confirmed to have these weights. A server that is lost or
        restarted meanwhile gets them again first, and its requests are sent again as a whole.

        Args:
            prompts: All prompts, including those that are answered already; a prompt's index
                determines its seeds.
            settings: The sampling fields, which may be others in every call; its fields about the
                prompt, and the model's name, must be those of the dialogue.
            records: The log that receives the responses.
            log_probs: Whether records get ``sampled_log_probs``: the log-prob of each token of
                ``token_ids``, the end token included; [] if the request failed.

        Raises:
            StageError: A server cannot get the weights, no server answers, too many requests fail,
                or a response has no log-probs.
        """
        self._weights.seconds = 0.0
        keys = ((one.problem_id, index) for one in prompts for index in range(settings.n))
        if all(key in records for key in keys):
            return
        if self._servers is None:
            self.load(self.dialogue.folder)
        dialogue = self.dialogue.with_settings(settings)
        client = Client(prompts, dialogue, records, self.context, log_probs, self._weights)
        asyncio.run(client.run(self._urls, self._servers or []))

    @property
    def hand_over_seconds(self) -> float:
        """The longest time that a server took to get and confirm the weights in the last `draw`."""
        return self._weights.seconds
