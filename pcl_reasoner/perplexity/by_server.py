"""Log-probs of responses by vLLM servers: the log-probs of a prompt's tokens.

    POST {base}/completions {"model": "policy", "prompt": [5, 6, 7], "max_tokens": 1,
                             "prompt_logprobs": 0, …}
    -> {"choices": [{"prompt_logprobs": [null, {"6": {"logprob": -1.2, "rank": 3}},
                                         {"7": {"logprob": -0.4, "rank": 1}}], …}]}

``prompt`` is the segment: prompt and response. ``prompt_logprobs`` has one entry per token. The
first is null, because no token predicts it. vLLM generates at least one token, which is ignored.

The log of a running stage has one line per response:

    {"problem_id": "9f0c…", "sample_index": 3, "log_prob_mean": -0.37, "server": "http://…/v1"}
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pcl_reasoner.answers.exchange import exchange, json_of
from pcl_reasoner.answers.failures import GivenUp, Passing, check_status, message_of
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schemas import Key
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.inference.addresses import Addresses, addresses
from pcl_reasoner.inference.answer_log import AnswerLog, Record
from pcl_reasoner.inference.asking import Asker
from pcl_reasoner.inference.fleet import Keys
from pcl_reasoner.inference.meant import meant
from pcl_reasoner.inference.questions import Questions
from pcl_reasoner.inference.server import started
from pcl_reasoner.inference.settings import SamplingConfig
from pcl_reasoner.pack.rows import list_at
from pcl_reasoner.perplexity.config import PerplexityConfig
from pcl_reasoner.perplexity.segments import response_ids

_ROUNDING = 1e-3
"""A log-prob may be above 0 by this much."""


@dataclass(frozen=True)
class Question:
    """A segment whose log-probs are requested.

    Args:
        key: problem_id and sample_index of the response.
        token_ids: Token ids of prompt and response.
        start: Index of the first token whose log-prob counts.
    """

    key: Key
    token_ids: list[int]
    start: int


def log_probs_by_server(
    config: PerplexityConfig,
    segments: pa.Table,
    policy: Path,
    log_file: Path,
    server_log: Path,
    context: StageContext,
) -> tuple[npt.NDArray[np.float64], dict[str, Any]]:
    """Ask for the segments that are not in the log yet.

    Args:
        config: The settings of the stage.
        segments: At least one segment (segments.py).
        policy: The model's Hugging Face folder, which the servers must have.
        log_file: The file to which answers are appended.
        server_log: File for the output of servers that are started here.
        context: ``placement.server_urls`` names the servers, or ``placement.sampling`` says how to
            start them.

    Returns:
        Mean log π over each response's tokens, [segments]; facts about servers and failures.

    Raises:
        StageError: No server is named or answers, an answer has no usable log-probs, or two
            responses have the same key.
    """
    urls, keys = _urls(context), _keys(segments)
    log = AnswerLog(log_file)
    try:
        if len(log) < len(keys):
            settings = server_settings(config)
            asked = Questions(
                settings=settings,
                keys=Keys(length="seq_length + 1"),
                remaining=_questions(segments, keys, log),
                answer=_answer,
                log=log,
                progress=context.progress,
                total=len(keys),
                unit="perplexities",
                send=complete,
                model=meant(policy, context.placement),
            )
            with started(context, "sampling", policy, settings, server_log) as servers:
                asked.ask(urls, servers)
        means = np.array([answer["log_prob_mean"] for answer in log.read(keys)], np.float64)
    finally:
        log.close()
    retried = {"retried": dict(sorted(log.retried.items()))} if log.retried else {}
    return means, {"servers": log.servers, **retried}


def server_settings(config: PerplexityConfig) -> SamplingConfig:
    """Return the settings of the client and of servers that are started: temperature 1."""
    return SamplingConfig(
        n=1,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        max_new_tokens=1,
        max_model_len=config.seq_length + 1,
        template=config.template,
        served_model=config.served_model,
        concurrency=config.concurrency,
        request_timeout=config.request_timeout,
        retries=config.retries,
    )


def body_of(question: Question, settings: SamplingConfig) -> Record:
    """Return a request's JSON; the log-probs are those of temperature 1, without top-k or top-p."""
    return prompt_body(question.token_ids, settings)


def prompt_body(token_ids: Sequence[int], settings: SamplingConfig) -> Record:
    """Return the JSON of a request for the log-probs of a prompt's tokens.

    Args:
        token_ids: The prompt.
        settings: Uses ``served_model``, and the fields that other requests send, too.
    """
    return {
        "model": settings.served_model,
        "prompt": list(token_ids),
        "n": 1,
        "max_tokens": 1,
        "prompt_logprobs": 0,  # of the token itself, and of no other
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "top_k": -1,
        "min_p": settings.min_p,
        "repetition_penalty": settings.repetition_penalty,
        "seed": 0,
        "stream": False,
    }


def mean_log_prob(answer: Mapping[str, Any], question: Question) -> float:
    """Read the mean log-prob of the response's tokens from a server's answer.

    Raises:
        Passing: The answer lacks log-probs, has another number of them, or has values that are no
            log-probs.
    """
    values = prompt_log_probs(answer, question.token_ids, question.start)
    return math.fsum(values) / len(values)


def prompt_log_probs(
    answer: Mapping[str, Any], token_ids: Sequence[int], start: int = 1
) -> list[float]:
    """Read the log-probs of a prompt's tokens from a server's answer.

    Args:
        answer: The answer's JSON.
        token_ids: The prompt.
        start: Index of the first token whose log-prob is read, at least 1.

    Raises:
        Passing: The answer lacks log-probs, has another number of them, or has values that are no
            log-probs.
    """
    try:
        entries = answer["choices"][0]["prompt_logprobs"]
        found = len(entries)
        if found != len(token_ids):
            raise Passing(f"{found} prompt_logprobs, expected {len(token_ids)}")
        places = range(start, found)
        values = [entries[place][str(token_ids[place])]["logprob"] for place in places]
    except (LookupError, TypeError) as error:
        raise Passing(f"no prompt_logprobs of all tokens ({error!r})") from error
    for place, value in zip(places, values, strict=True):
        if type(value) not in (float, int) or not -math.inf < value <= _ROUNDING:
            raise Passing(f"the log-prob of token {place} is {value!r}, which is no log-prob")
    return values


async def complete(http: httpx.AsyncClient, url: str, body: dict[str, Any]) -> dict[str, Any]:
    """Send one request to one server, and return the answer's JSON.

    Args:
        http: The client.
        url: The server's base URL, which ends in ``/v1``.
        body: The request's JSON, from `body_of`.

    Raises:
        GivenUp: The server refuses the request.
        Passing: The failure may be temporary.
        httpx.TransportError: The connection failed; this may be temporary too.
        StageError: The server requires another API key.
    """
    tokens = len(body["prompt"])
    answer = await exchange(http, "POST", f"{url}/completions", tokens=tokens, json=body)
    check_status(url, answer)
    value = json_of(answer)
    if not isinstance(value, dict):
        raise Passing(f"an answer that is not a JSON object: {message_of(answer)}")
    return value


async def _answer(asker: Asker[Any], question: Question) -> list[Record]:
    """Ask one question; return the line of the log."""
    name, index = question.key

    def read(answer: Record, seconds: float, url: str) -> Record:
        key = {"problem_id": name, "sample_index": index}
        return {**key, "log_prob_mean": mean_log_prob(answer, question), "server": url}

    try:
        return [await asker.ask(body_of(question, asker.fleet.settings), read)]
    except GivenUp as refusal:
        raise StageError(
            f"no server gives log-probs of response {index} of problem {name} ({refusal}). Check "
            "the servers and their model, and run again: earlier answers are kept."
        ) from refusal


def _urls(context: StageContext) -> Addresses:
    """Return the addresses of running servers; empty if the stage starts its own."""
    urls = addresses(context.placement.urls_of("sampling"), context.placement)
    if not urls and not context.placement.sampling:
        raise StageError(
            "engine is 'server', but the launch file names no server. Put its base URL into the "
            "launch file: placement: {server_urls: [http://host:8000/v1]}; or have the stage start "
            "one: placement: {sampling: {executable: /path/to/vllm}}; or set engine to model."
        )
    return urls


def _keys(segments: pa.Table) -> list[Key]:
    """Return the keys of the responses, which must be different."""
    names = (segments[name].to_pylist() for name in ("problem_id", "sample_index"))
    keys = list(zip(*names, strict=True))
    if len(set(keys)) < len(keys):
        raise StageError(
            "several responses have the same problem_id and sample_index, by which answers are "
            "kept. Set engine to model, or give the stage the responses of one stage `sample`."
        )
    return keys


def _questions(segments: pa.Table, keys: list[Key], log: AnswerLog) -> Iterator[Question]:
    for index, key in enumerate(keys):
        if key not in log:
            token_ids = list_at(segments["input_ids"], index).tolist()
            start = len(token_ids) - len(response_ids(segments, index))
            yield Question(key, token_ids, start)
