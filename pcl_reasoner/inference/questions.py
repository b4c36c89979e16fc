"""Asks many questions of a group of servers (a fleet), several at a time, and logs the answers.

A question is what one line of the log answers: a response to score, a response to rate.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from pcl_reasoner.answers.chat import Send, post
from pcl_reasoner.core.stage import Progress
from pcl_reasoner.inference.addresses import Addresses
from pcl_reasoner.inference.answer_log import AnswerLog, Record
from pcl_reasoner.inference.asking import Asker
from pcl_reasoner.inference.fleet import Fleet, Keys, connections
from pcl_reasoner.inference.fleet_server import Server, Weights
from pcl_reasoner.inference.meant import Meant
from pcl_reasoner.inference.server import SupervisedServer
from pcl_reasoner.inference.settings import SamplingConfig

Question = TypeVar("Question")


async def _no_check(fleet: Fleet, server: Server) -> None:
    """Accept every server."""


@dataclass
class Questions(Generic[Question]):
    """Questions that are not answered yet, and the log that gets their answers.

    Args:
        settings: Uses the model's name, the context length, ``concurrency``, ``retries`` and
            ``request_timeout``.
        keys: Names of the settings, for error messages.
        remaining: The questions; read in a thread while answers arrive.
        answer: Asks one question, and returns the records to log; empty if there is no answer.
        log: The log.
        progress: Receives the number of answers.
        total: Number of answers at the end, those of earlier runs included.
        unit: What an answer is called, e.g. ``scores``.
        send: Sends one request to one server.
        check: Checks a server before the first question; raises StageError.
        model: The model that the servers must have; None: it is not known.
        weights: What every server must have before it is asked; None: what it has.
        warn: Receives a warning for each running server that was given up while others continued.
    """

    settings: SamplingConfig
    keys: Keys
    remaining: Iterator[Question]
    answer: Callable[[Asker[Any], Question], Awaitable[Iterable[Record]]]
    log: AnswerLog
    progress: Progress
    total: int
    unit: str
    send: Send[Any] = post
    check: Callable[[Fleet, Server], Awaitable[None]] = _no_check
    model: Meant | None = None
    weights: Weights | None = None
    warn: Callable[[str], None] = field(kw_only=True)
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    _writing: asyncio.Lock = field(default_factory=asyncio.Lock)

    def ask(self, urls: Addresses, servers: list[SupervisedServer]) -> None:
        """Ask all questions.

        Args:
            urls: Servers that run already.
            servers: Servers that this process has started.

        Raises:
            StageError: The servers fail, or ``check`` or ``answer`` raised this error.
        """
        asyncio.run(self._ask(urls, servers))

    async def _ask(self, urls: Addresses, servers: list[SupervisedServer]) -> None:
        async with connections(self.settings, len(urls) + len(servers)) as http:
            common = (urls, self.settings, http, servers, self.keys)
            fleet = Fleet(*common, self.weights, self.model)
            for facts in await fleet.open():
                self.log.add_server(facts)
            await asyncio.gather(*[self.check(fleet, server) for server in fleet.servers])
            asker = Asker(fleet, self.log.retried, self._kept, self.send)
            await fleet.run(lambda: self._work(asker))
            fleet.warn_of_given_up(self.warn)

    async def _work(self, asker: Asker[Any]) -> None:
        while (question := await self._next()) is not None:
            records = await self.answer(asker, question)
            async with self._writing:
                await asyncio.to_thread(self.log.add, records)
            self.progress.update(len(self.log), self.total, self.unit)

    async def _next(self) -> Question | None:
        # In a thread: reading long responses must not block requests to the servers.
        async with self._reading:
            return await asyncio.to_thread(next, self.remaining, None)

    def _kept(self) -> str:
        return f"{len(self.log)} {self.unit} are kept"
