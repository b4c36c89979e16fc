"""Samples from OpenAI-compatible servers: one request per problem for its n responses.

Each client task writes its answer before it sends its next request, so a kill loses only the
requests in flight. A request that fails is sent again, to another server if there is one. A request
that fails for good is recorded too, with the reason.
"""

import asyncio
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from pcl_reasoner.answers.chat import ChatAnswer, Choice, Message, post
from pcl_reasoner.answers.failures import GivenUp, Passing
from pcl_reasoner.answers.sampled_log_probs import log_probs_of
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.inference.addresses import Addresses, addresses
from pcl_reasoner.inference.answer_log import Record
from pcl_reasoner.inference.asking import Asker
from pcl_reasoner.inference.dialogue import Dialogue, Prompt
from pcl_reasoner.inference.fleet import Fleet, connections
from pcl_reasoner.inference.fleet_server import Weights
from pcl_reasoner.inference.meant import meant
from pcl_reasoner.inference.proof import compare, compare_templates
from pcl_reasoner.inference.requests import Request, body_of, requests_for
from pcl_reasoner.inference.response_log import (
    FAILURE,
    LOG_PROBS,
    RETOKENISED,
    ResponseLog,
    record,
    too_many_failed,
)
from pcl_reasoner.inference.server import SupervisedServer, started
from pcl_reasoner.inference.settings import SamplingConfig
from pcl_reasoner.serving.serve_command import devices_each

ENDED = ("stop", "length", "repetition")
"""What vLLM says of a response that the model ended, or that reached a limit."""
FAILURES_SHOWN = 5
"""Number of failed requests that get a warning each; later failures are only counted."""


def ask_servers(
    prompts: list[Prompt],
    dialogue: Dialogue,
    records: ResponseLog,
    context: StageContext,
    log: Path,
    weights: Weights | None = None,
) -> None:
    """Request every response that is missing; each is written to ``records`` as it arrives.

    Args:
        prompts: All prompts, including those that are answered already.
        dialogue: The model's tokenizer and template, with the sampling fields.
        records: The log that receives the responses.
        context: Uses ``placement.server_urls`` with ``placement.api_keys``, or
            ``placement.sampling``; receives progress and warnings.
        log: File for the output of a server that is started here.
        weights: What every server must have before it is asked; None: what it has.

    Raises:
        StageError: No server is named, none answers, or too many requests fail.
    """
    urls = named_servers(dialogue.settings, context)
    with started(context, "sampling", dialogue.folder, dialogue.settings, log) as servers:
        client = Client(prompts, dialogue, records, context, weights=weights)
        asyncio.run(client.run(urls, servers))


def named_servers(settings: SamplingConfig, context: StageContext) -> Addresses:
    """Return the policy's servers that run already; empty if the stage starts its own.

    Raises:
        StageError: The launch file names no server and does not say how to start one.
    """
    urls = addresses(context.placement.urls_of("sampling"), context.placement)
    if not urls and not context.placement.sampling:
        raise StageError(
            "engine is 'server', but the launch file names no server. Start one, e.g. `vllm serve "
            f"<model folder> --served-model-name {settings.served_model} --max-model-len "
            f"{settings.max_model_len} --generation-config vllm`, and put its base URL into the "
            "launch file: placement: {server_urls: [http://host:8000/v1]}; or have the stage "
            "start one: placement: {sampling: {executable: /path/to/vllm}}. A small model can be "
            "sampled here with engine: local."
        )
    return urls


class Client:
    """Sends requests for all missing responses, and records the answers and failures.

    Args:
        prompts: All prompts, including those that are answered already.
        dialogue: The model's tokenizer and template, with the sampling fields.
        records: The log that receives the responses.
        context: Receives progress and warnings.
        log_probs: Whether the log-probs of sampled tokens are recorded, too (LOG_PROBS).
        weights: What every server must have before it is asked; None: what it has.
    """

    def __init__(
        self,
        prompts: list[Prompt],
        dialogue: Dialogue,
        records: ResponseLog,
        context: StageContext,
        log_probs: bool = False,
        weights: Weights | None = None,
    ) -> None:
        self.prompts, self.dialogue, self.settings = prompts, dialogue, dialogue.settings
        self.records, self.context = records, context
        self.log_probs, self.weights = log_probs, weights
        self.total = len(prompts) * self.settings.n
        self.failures_shown = 0
        self.began, self.tokens_before = 0.0, records.tokens
        self.writing = asyncio.Lock()
        self.fleet: Fleet
        self.asker: Asker[ChatAnswer]

    async def run(self, urls: Addresses, supervised: list[SupervisedServer]) -> None:
        """Send all requests, at most ``concurrency`` at a time.

        Args:
            urls: Servers that run already.
            supervised: Servers that this process has started.

        Raises:
            StageError: The servers fail, or too many requests fail.
        """
        settings = self.settings
        async with connections(settings, len(urls) + len(supervised)) as http:
            model = meant(self.dialogue.folder, self.context.placement)
            self.fleet = Fleet(urls, settings, http, supervised, weights=self.weights, model=model)
            self.asker = Asker(self.fleet, self.records.retried, self._kept, post)
            await self._check()
            requests = requests_for(self.prompts, self.dialogue, self.records)
            self.began = time.monotonic()
            await self.fleet.run(lambda: self._work(requests))
            self.fleet.warn_of_given_up(self.context.warn)

    async def _check(self) -> None:
        """Check that the servers offer the right model and tokenize prompts as we do."""
        facts_of_servers = await self.fleet.open()
        for server, facts in zip(self.fleet.servers, facts_of_servers, strict=True):
            # /version and /tokenize are vLLM's; other OpenAI-compatible servers have neither.
            compared = facts["version"] is not None and await compare_templates(
                self.fleet, server, self.prompts, self.dialogue
            )
            if not compared:
                self.context.warn(
                    f"{server.url}: has no /tokenize, so its template cannot be compared before "
                    "sampling. The prompts in its answers are compared."
                )
            facts["template_compared"] = compared
            self.records.add_server(facts)

    async def _work(self, requests: Iterator[Request]) -> None:
        for request in requests:
            try:
                body = body_of(request, self.settings, self.log_probs)
                records = await self.asker.ask(body, partial(self._records, request))
            except GivenUp as given_up:
                records = self._failed(request, given_up)
            async with self.writing:
                await asyncio.to_thread(self.records.add, records)
            self.context.progress.update(len(self.records), self.total, "responses", self._pace())

    def _kept(self) -> str:
        return f"{len(self.records)} of {self.total} responses are kept"

    def _pace(self) -> str:
        """Return speed and finish reasons: ``1,200 tokens/s, 4.3 M per device-hour, length 3%``."""
        rate = (self.records.tokens - self.tokens_before) / max(time.monotonic() - self.began, 1e-9)
        placement = self.context.placement
        serving = placement.sampling
        per_server = devices_each(serving, placement) if serving else placement.server_devices
        devices = per_server * len(self.fleet.servers)
        others = [
            f"{reason} {count / len(self.records):.0%}"
            for reason, count in sorted(self.records.finish_reasons.items())
            if reason != "stop"
        ]
        millions = rate * 3600 / devices / 1e6
        return ", ".join([f"{rate:,.0f} tokens/s", f"{millions:,.1f} M per device-hour", *others])

    def _failed(self, request: Request, given_up: GivenUp) -> list[Record]:
        """Return the records of a request that was given up: empty responses, graded incorrect.

        Raises:
            StageError: Too many responses have failed, so the servers must be at fault.
        """
        failed = self.records.failed + request.count
        if failed > self.settings.max_failed * self.total:
            raise too_many_failed(failed, self.total, self.settings, given_up)
        name = request.prompt.problem_id
        self.failures_shown += 1
        if self.failures_shown <= FAILURES_SHOWN:
            self.context.warn(f"problem {name}: request failed for good: {given_up}.")
        reason = given_up.finish_reason
        records = [
            record((name, request.first + i), "", [], reason, request.seed + i, None, "")
            for i in range(request.count)
        ]
        extra: Record = {LOG_PROBS: []} if self.log_probs else {}
        return [{**one, FAILURE: given_up.kind, **extra} for one in records]

    def _records(
        self, request: Request, answer: ChatAnswer, seconds: float, url: str
    ) -> list[Record]:
        self._compare_prompt(request, answer, url)
        found = []
        for offset, choice in enumerate(answer.choices):
            key = (request.prompt.problem_id, request.first + offset)
            reason = _finish_reason(choice)
            token_ids = self._token_ids(choice, reason, url)
            text = self.dialogue.response(token_ids, reason)
            one = record(key, text, token_ids, reason, request.seed + offset, seconds, url)
            if self.log_probs:
                one[LOG_PROBS] = log_probs_of(choice, token_ids, url)
            found.append({**one, RETOKENISED: True} if choice.token_ids is None else one)
        return found

    def _token_ids(self, choice: Choice, reason: str, url: str) -> list[int]:
        """Return the sampled or re-encoded token ids, with an end token if the model stopped.

        Raises:
            Passing: There is no token, or one that the model does not have.
            StageError: The server removes the think part.
        """
        token_ids = choice.token_ids
        if token_ids is None:
            message = choice.message or Message()
            if message.reasoning_content or message.reasoning:
                raise StageError(
                    f"{url}: removes the think part from the response. Start it without "
                    "--reasoning-parser."
                )
            token_ids = self.dialogue.encode(message.content or "")
        if not token_ids:
            raise Passing("a response without a token", kind="empty response")
        if max(token_ids) >= self.dialogue.vocab_size:
            raise Passing(
                f"token {max(token_ids)}, and the model has {self.dialogue.vocab_size:,} tokens",
                kind="unknown token",
            )
        ends = self.dialogue.end_ids
        if reason == "stop" and token_ids[-1] not in ends:
            token_ids = [*token_ids, ends[0]]
        return token_ids

    def _compare_prompt(self, request: Request, answer: ChatAnswer, url: str) -> None:
        """Check that the server used the same prompt tokens as training will use.

        Different token ids are an error. If an answer has only the number of tokens, a different
        number causes a warning.

        Raises:
            StageError: The answer has ``prompt_token_ids``, and they differ from ours.
        """
        ids = answer.prompt_token_ids
        if ids is not None:
            compare(request.prompt, ids, self.dialogue, url)
            return
        served = answer.usage.prompt_tokens if answer.usage else None
        if served is not None and served != len(request.prompt.ids):
            self.context.warn(
                f"{url}: its prompts differ from this stage's: it counted {served} tokens, "
                f"expected {len(request.prompt.ids)} by the template (problem "
                f"{request.prompt.problem_id}). Start it with the same chat template."
            )


def _finish_reason(choice: Choice) -> str:
    """Return why a response ended.

    Raises:
        Passing: It did not end: the server sent what it had, e.g. because it was stopped, or a
            filter removed the rest.
    """
    reason = choice.finish_reason
    if reason not in ENDED:
        raise Passing(
            f"a response that the model did not end (finish_reason {reason})", kind="aborted"
        )
    return reason
