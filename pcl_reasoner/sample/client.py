"""Ask OpenAI-compatible servers: one request a problem, n responses each, all fields explicit.

    POST {base}/chat/completions
    {"model": "policy", "messages": […], "n": 8, "seed": 40, "temperature": 0.6, "top_k": 40, …}
    -> {"choices": [{"index": 0, "message": {"content": "<think>…"}, "token_ids": [27, …],
        "finish_reason": "stop"}, …], "usage": {"prompt_tokens": 31}}

A server draws ``n`` responses at seed s as it would draw eight requests at s, s+1 …, so problems'
seeds are n apart, and what a kill left out of a problem is asked for at its own seed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx

from pcl_reasoner.errors import StageError
from pcl_reasoner.sample.generate import Dialogue, Prompt
from pcl_reasoner.sample.records import RETOKENISED, Record, Records, record
from pcl_reasoner.sample.settings import SamplingConfig
from pcl_reasoner.stage import StageContext

FIRST_PAUSE = 0.5
"""Seconds before the first retry; four times as long before each further one."""
LONGEST_PAUSE = 60.0
CHECK_TIMEOUT = 10.0
"""Seconds that a server has to say which models it offers."""
FEW_FAILURES = 64
"""Up to this many failed responses never stop a stage, whatever share they are."""

TOLD_FAILURES = 5
"""So many are told one by one, the others only counted."""


@dataclass(frozen=True)
class Request:
    """A run of samples of one problem: those from ``first`` to ``first + count - 1``."""

    prompt: Prompt
    first: int
    count: int
    seed: int
    max_tokens: int


@dataclass
class Server:
    """One base URL, and how it does."""

    url: str
    outstanding: int = 0
    rests_until: float = 0.0
    """Loop time before which it is only asked when no other server can be."""


class GivenUp(Exception):
    """A request that will not be answered: its finish reason, and why."""

    def __init__(self, finish_reason: str, why: str) -> None:
        super().__init__(why)
        self.finish_reason = finish_reason


def requests_for(
    prompts: list[Prompt], settings: SamplingConfig, dialogue: Dialogue, records: Records
) -> Iterator[Request]:
    """The requests that fill what is missing, as few as there are runs of missing samples.

    Args:
        prompts: All prompts, in the order that gives them their seeds.
        settings: The sampling fields.
        dialogue: For the room that a prompt leaves.
        records: What is there.
    """
    # A greedy response is one however often it is asked for, and vLLM refuses n > 1 there.
    together = 1 if settings.temperature == 0 else settings.n
    for ordinal, prompt in enumerate(prompts):
        room = max(dialogue.room(prompt, settings.max_model_len), 1)
        start = settings.seed + ordinal * settings.n
        index = 0
        while index < settings.n:
            count = 0
            while (
                index + count < settings.n
                and count < together
                and (prompt.problem_id, index + count) not in records
            ):
                count += 1
            if count:
                yield Request(prompt, index, count, start + index, room)
            index += count or 1


def body_of(request: Request, settings: SamplingConfig, dialogue: Dialogue) -> dict[str, Any]:
    """The request's JSON: a server takes what is left out from the weights' own defaults."""
    body = {
        "model": settings.served_model,
        "messages": request.prompt.messages,
        "n": request.count,
        "seed": request.seed,
        "max_tokens": request.max_tokens,
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "top_k": settings.top_k or -1,  # both are "all" today, older servers know -1 alone
        "min_p": settings.min_p,
        "repetition_penalty": settings.repetition_penalty,
        "stream": False,
        "return_token_ids": True,
    }
    if settings.template is not None:
        body["chat_template"] = dialogue.template.source
    return body


def ask_servers(
    prompts: list[Prompt],
    settings: SamplingConfig,
    dialogue: Dialogue,
    records: Records,
    context: StageContext,
) -> None:
    """Ask for every response that is missing; each goes to ``records`` as it comes.

    Raises:
        StageError: No server is named or answers, or too many requests fail.
    """
    urls = [str(url).rstrip("/") for url in context.placement.get("server_urls") or []]
    if not urls:
        raise StageError(
            "engine is 'server' and the launch file names none. Start one, e.g. `vllm serve "
            f"<model folder> --served-model-name {settings.served_model} --max-model-len "
            f"{settings.max_model_len} --generation-config vllm`, and put its base URL into the "
            "launch file: placement: {server_urls: [http://host:8000/v1]}. A small model can be "
            "sampled here with engine: embedded."
        )
    asyncio.run(_Client(urls, settings, dialogue, records, context, len(prompts)).run(prompts))


class _Client:
    """The servers, and what has been asked of them."""

    def __init__(
        self,
        urls: list[str],
        settings: SamplingConfig,
        dialogue: Dialogue,
        records: Records,
        context: StageContext,
        problems: int,
    ) -> None:
        self.servers = [Server(url) for url in urls]
        self.settings, self.dialogue = settings, dialogue
        self.records, self.context = records, context
        self.total = problems * settings.n
        self.told = 0
        self.http: httpx.AsyncClient

    async def run(self, prompts: list[Prompt]) -> None:
        """Work through all requests with as many workers as may be under way."""
        settings = self.settings
        requests = requests_for(prompts, settings, self.dialogue, self.records)
        # Servers are the user's own: a proxy of the environment has no business between.
        self.http = httpx.AsyncClient(
            timeout=httpx.Timeout(settings.request_timeout, connect=CHECK_TIMEOUT, pool=None),
            limits=httpx.Limits(max_connections=settings.concurrency + len(self.servers)),
            trust_env=False,
        )
        async with self.http:
            await asyncio.gather(*[self._check(server) for server in self.servers])
            try:
                async with asyncio.TaskGroup() as group:
                    for _ in range(settings.concurrency):
                        group.create_task(self._work(requests))
            except BaseExceptionGroup as several:
                raise several.exceptions[0] from None

    async def _work(self, requests: Iterator[Request]) -> None:
        for request in requests:
            try:
                records = await self._ask(request)
            except GivenUp as given_up:
                records = self._failed(request, given_up)
            self.records.add(records)
            self.context.progress.update(len(self.records), self.total, "responses")

    async def _check(self, server: Server) -> None:
        """See that a server answers, offers the model, and has the context that is asked for."""
        found = await self._models(server)
        if found is None:
            raise StageError(
                f"{server.url}: no answer. Start the server, or mend placement.server_urls in the "
                "launch file, and run again: responses that are there are kept."
            )
        names = [str(model.get("id")) for model in found]
        wanted = self.settings.served_model
        if found and wanted not in names:
            raise StageError(
                f"{server.url}: offers {', '.join(names)}, not {wanted!r}. Start it with "
                f"--served-model-name {wanted}, or set served_model."
            )
        for model in found:
            length = model.get("max_model_len")
            if model.get("id") == wanted and length and length < self.settings.max_model_len:
                raise StageError(
                    f"{server.url}: serves {length} tokens of context, max_model_len is "
                    f"{self.settings.max_model_len}. Start it with --max-model-len "
                    f"{self.settings.max_model_len}, or set max_model_len."
                )

    async def _models(self, server: Server) -> list[dict[str, Any]] | None:
        """The models a server offers; empty when it does not say, None when it is not there."""
        try:
            answer = await self.http.get(f"{server.url}/models", timeout=CHECK_TIMEOUT)
        except httpx.HTTPError:
            return None
        if answer.status_code != 200:
            return []
        try:
            return [model for model in answer.json()["data"] if isinstance(model, dict)]
        except (ValueError, KeyError, TypeError):
            return []

    async def _ask(self, request: Request) -> list[Record]:
        """Send a request until it is answered, or failed for good.

        Raises:
            GivenUp: The server refuses it, or it failed ``retries`` times and others do not.
            StageError: The servers are not there any more.
        """
        failed_on: list[str] = []
        for attempt in range(self.settings.retries + 1):
            server = self._choose(failed_on)
            started = time.monotonic()
            server.outstanding += 1
            try:
                answer = await self._post(server, request)
                return self._records(request, answer, time.monotonic() - started, server)
            except (httpx.TransportError, _Passing) as failure:
                last: Exception = failure
            finally:
                server.outstanding -= 1
            failed_on.append(server.url)
            pause = self._pause(server, last, attempt)
            if attempt < self.settings.retries:
                await asyncio.sleep(pause)
        raise await self._verdict(server, last)

    def _choose(self, failed_on: list[str]) -> Server:
        """The server with the least to do, of those on which this request failed least often."""
        now = asyncio.get_running_loop().time()
        return min(
            self.servers,
            key=lambda s: (failed_on.count(s.url), s.rests_until > now, s.outstanding),
        )

    def _pause(self, server: Server, failure: Exception, attempt: int) -> float:
        """Let a server rest after a failure; the seconds to wait before asking again."""
        pause = min(FIRST_PAUSE * 4.0**attempt, LONGEST_PAUSE)
        if isinstance(failure, _Passing) and failure.retry_after is not None:
            pause = min(failure.retry_after, LONGEST_PAUSE)
        server.rests_until = asyncio.get_running_loop().time() + pause
        return pause

    async def _post(self, server: Server, request: Request) -> dict[str, Any]:
        body = body_of(request, self.settings, self.dialogue)
        answer = await self.http.post(f"{server.url}/chat/completions", json=body)
        status = answer.status_code
        if status in (401, 403):
            raise StageError(
                f"{server.url}: status {status}: {_said(answer)}. Start the server without a key."
            )
        if status == 429 or status >= 500:
            raise _Passing(f"status {status}: {_said(answer)}", status, _retry_after(answer))
        if status != 200:
            raise GivenUp("error", f"status {status}: {_said(answer)}")
        try:
            value = answer.json()
            choices = value["choices"]
        except (ValueError, KeyError, TypeError) as error:
            raise _Passing(f"an answer that is not a chat completion: {_said(answer)}") from error
        if len(choices) != request.count or not all(isinstance(c, dict) for c in choices):
            raise _Passing(f"{len(choices)} choices where {request.count} were asked for")
        return dict(value)

    async def _verdict(self, server: Server, last: Exception) -> Exception:
        """A failure that did not pass: the request's if its server is well, or the stage's."""
        why = str(last) or type(last).__name__
        overloaded = isinstance(last, _Passing) and last.status in (429, 503)
        if not overloaded and await self._models(server) is not None:
            kind = "timeout" if isinstance(last, httpx.TimeoutException) else "error"
            return GivenUp(kind, why)
        return StageError(
            f"{server.url}: {why}, after {self.settings.retries} retries. "
            + ("Lower concurrency" if overloaded else "Start the server again")
            + f" and run again: {len(self.records)} of {self.total} responses are kept."
        )

    def _failed(self, request: Request, given_up: GivenUp) -> list[Record]:
        """The records of a request that was given up: empty responses, wrong when graded.

        Raises:
            StageError: So many have failed that the servers, not the problems, are at fault.
        """
        failed = self.records.failed + request.count
        if failed > max(FEW_FAILURES, self.settings.max_failed * self.total):
            raise StageError(
                f"{failed} of {self.total} responses failed, the limit is max_failed "
                f"{self.settings.max_failed:.0%}. The last: {given_up}. Mend the server; if the "
                "failures were its fault, remove the .partial folder, and run again."
            )
        name = request.prompt.problem_id
        self.told += 1
        if self.told <= TOLD_FAILURES:
            self.context.warn(f"problem {name}: request failed for good: {given_up}.")
        reason = given_up.finish_reason
        return [
            record((name, request.first + i), "", [], reason, request.seed + i, None, "")
            for i in range(request.count)
        ]

    def _records(
        self, request: Request, answer: dict[str, Any], seconds: float, server: Server
    ) -> list[Record]:
        self._compare_prompt(request, answer)
        choices = sorted(answer["choices"], key=lambda choice: int(choice.get("index") or 0))
        found = []
        for offset, choice in enumerate(choices):
            reason = choice.get("finish_reason") or "error"
            given = choice.get("token_ids")
            token_ids = self._token_ids(choice, given, reason, server)
            one = record(
                (request.prompt.problem_id, request.first + offset),
                self.dialogue.response(token_ids, reason),
                token_ids,
                reason,
                request.seed + offset,
                seconds,
                server.url,
            )
            found.append(one if given is not None else {**one, RETOKENISED: True})
        return found

    def _token_ids(
        self, choice: dict[str, Any], given: list[int] | None, reason: str, server: Server
    ) -> list[int]:
        """The ids as drawn, with the end-of-turn id where they ended; made anew if not given."""
        message = choice.get("message") or {}
        if given is None and (message.get("reasoning_content") or message.get("reasoning")):
            raise StageError(
                f"{server.url}: takes the think part out of the response. Start it without "
                "--reasoning-parser."
            )
        token_ids = self.dialogue.encode(message.get("content") or "") if given is None else given
        ends = self.dialogue.end_ids
        if reason == "stop" and (not token_ids or token_ids[-1] not in ends):
            token_ids = [*token_ids, ends[0]]
        return token_ids

    def _compare_prompt(self, request: Request, answer: dict[str, Any]) -> None:
        """Two templates or tokenizers would train on other prompts than were answered."""
        served = (answer.get("usage") or {}).get("prompt_tokens")
        if served is not None and served != len(request.prompt.ids):
            self.context.warn(
                "the server's prompts are not ours: it counted "
                f"{served} tokens where the template gives {len(request.prompt.ids)} (problem "
                f"{request.prompt.problem_id}). Start it with the same chat template."
            )


class _Passing(Exception):
    """A failure that may pass: the status where there is one, and how long to wait."""

    def __init__(
        self, why: str, status: int | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(why)
        self.status = status
        self.retry_after = retry_after


def _said(answer: httpx.Response) -> str:
    """The start of what a server said, on one line."""
    return " ".join(answer.text[:300].split()) or "nothing"


def _retry_after(answer: httpx.Response) -> float | None:
    """Seconds of a Retry-After header; a date there is not read."""
    value = answer.headers.get("retry-after", "")
    return float(value) if value.isdigit() else None
