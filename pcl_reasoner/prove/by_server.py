"""The log-probs that each server computes for the stored segments, and its chat template.

    [Served({"url": "http://a:8000/v1", "version": "0.32.0", "model": "/runs/…"}, [[-0.4, …], …])]

Every server is asked by itself, because every start of a server may go wrong by itself.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pcl_reasoner.answers.failures import GivenUp
from pcl_reasoner.answers.prompt_log_probs import complete, prompt_log_probs
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.inference.addresses import Addresses
from pcl_reasoner.inference.answer_log import AnswerLog, Record
from pcl_reasoner.inference.asking import Asker
from pcl_reasoner.inference.client import named_servers
from pcl_reasoner.inference.dialogue import Dialogue, Prompt
from pcl_reasoner.inference.fleet import Fleet, Keys
from pcl_reasoner.inference.fleet_server import Server
from pcl_reasoner.inference.meant import meant
from pcl_reasoner.inference.proof import compare_templates
from pcl_reasoner.inference.questions import Questions
from pcl_reasoner.inference.requests import prompt_body
from pcl_reasoner.inference.server import SupervisedServer, started
from pcl_reasoner.inference.settings import SamplingConfig
from pcl_reasoner.pack.rows import list_at
from pcl_reasoner.prove.config import ProveConfig
from pcl_reasoner.recheck.difference import Values


@dataclass(frozen=True)
class Served:
    """What a server computed.

    Args:
        facts: The facts that it reports: url, version, model.
        values: log π of every token but the first, one array per segment.
    """

    facts: dict[str, Any]
    values: Values


@dataclass(frozen=True)
class Asking:
    """Asks servers for the log-probs of stored segments.

    Args:
        config: The settings of the stage.
        segments: The stored segments.
        model: The exported folder, which the servers must have.
        trained: A prompt by the trained template, and the dialogue that decodes it.
        folder: Folder for the logs of answers.
        context: Names or describes the servers; receives progress.
    """

    config: ProveConfig
    segments: pa.Table
    model: Path
    trained: tuple[Prompt, Dialogue]
    folder: Path
    context: StageContext

    def ask_all(self, server_log: Path) -> list[Served]:
        """Start the servers that the launch file describes, and ask every server.

        Raises:
            StageError: No server is named or answers, one serves another folder or has another
                chat template, or an answer has no log-probs.
        """
        settings = server_settings(self.config)
        urls = named_servers(settings, self.context)
        with started(self.context, "sampling", self.model, settings, server_log) as servers:
            alone: list[tuple[Addresses, list[SupervisedServer]]] = [
                *(({url: key}, []) for url, key in urls.items()),
                *(({}, [server]) for server in servers),
            ]
            return [self._ask(number, *one) for number, one in enumerate(alone)]

    def _ask(self, number: int, urls: Addresses, servers: list[SupervisedServer]) -> Served:
        file = self.folder / f"server_{number}.jsonl"
        file.unlink(missing_ok=True)  # a server may have been started again since
        log = AnswerLog(file)
        keys = [("segment", index) for index in range(len(self.segments))]
        try:
            Questions(
                settings=server_settings(self.config),
                keys=Keys(length="seq_length + 1"),
                remaining=self._questions(),
                answer=partial(_answer, self.config),
                log=log,
                progress=self.context.progress,
                total=len(keys),
                unit="segments",
                send=complete,
                check=self._check_template,
                model=meant(self.model, self.context.placement),
                warn=self.context.warn,
            ).ask(urls, servers)
            found = [np.array(one["log_probs"], np.float32) for one in log.read(keys)]
        finally:
            log.close()
        return Served(log.servers[0], found)

    def _questions(self) -> Iterator[tuple[int, list[int]]]:
        for index in range(len(self.segments)):
            yield index, list_at(self.segments["input_ids"], index).tolist()

    async def _check_template(self, fleet: Fleet, server: Server) -> None:
        prompt, dialogue = self.trained
        if not await compare_templates(fleet, server, [prompt], dialogue):
            self.context.warn(f"{server.url}: has no /tokenize: its template is not compared.")


def server_settings(config: ProveConfig) -> SamplingConfig:
    """Return the settings of the client and of servers that are started: temperature 1."""
    return SamplingConfig(
        n=1,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        max_new_tokens=1,
        max_model_len=config.context_tokens,
        template=config.template,
        served_model=config.served_model,
        concurrency=config.concurrency,
        request_timeout=config.request_timeout,
        retries=config.retries,
    )


async def _answer(
    config: ProveConfig, asker: Asker[Any], question: tuple[int, list[int]]
) -> list[Record]:
    index, ids = question

    def read(answer: Record, seconds: float, url: str) -> Record:
        values = prompt_log_probs(answer, ids)
        return {"problem_id": "segment", "sample_index": index, "log_probs": values}

    try:
        return [await asker.ask(prompt_body(ids, asker.fleet.settings), read)]
    except GivenUp as refusal:
        raise StageError(
            f"{asker.fleet.servers[0].url}: gives no log-probs of a stored response of {len(ids)} "
            f"tokens ({refusal}). Start it with vLLM, and with {config.context_tokens} tokens of "
            "context."
        ) from refusal
