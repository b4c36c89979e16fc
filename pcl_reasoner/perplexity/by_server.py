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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pcl_reasoner.answers.failures import GivenUp
from pcl_reasoner.answers.prompt_log_probs import complete, prompt_log_probs
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schemas import Key
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.inference.addresses import Addresses, addresses
from pcl_reasoner.inference.answer_log import AnswerLog, Record
from pcl_reasoner.inference.asking import Asker
from pcl_reasoner.inference.fleet import Keys
from pcl_reasoner.inference.meant import meant
from pcl_reasoner.inference.questions import Questions
from pcl_reasoner.inference.requests import prompt_body
from pcl_reasoner.inference.server import started
from pcl_reasoner.inference.settings import SamplingConfig
from pcl_reasoner.pack.rows import list_at
from pcl_reasoner.perplexity.config import PerplexityConfig
from pcl_reasoner.perplexity.segments import response_ids
from pcl_reasoner.recheck.starts import recheck_of


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
    proof: Path | None = None,
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
        proof: What a stage `prove` of the policy wrote; every start of a server is compared with
            it first. None: nothing is compared.

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
            remaining = _questions(segments, keys, log)
            asked = _asked(settings, remaining, log, len(keys), policy, context, proof)
            with started(context, "sampling", policy, settings, server_log) as servers:
                asked.ask(urls, servers)
        means = np.array([answer["log_prob_mean"] for answer in log.read(keys)], np.float64)
    finally:
        log.close()
    return means, _facts(log)


def _asked(
    settings: SamplingConfig,
    remaining: Iterator[Question],
    log: AnswerLog,
    total: int,
    policy: Path,
    context: StageContext,
    proof: Path | None,
) -> Questions[Question]:
    return Questions(
        settings=settings,
        keys=Keys(length="seq_length + 1"),
        remaining=remaining,
        answer=_answer,
        log=log,
        progress=context.progress,
        total=total,
        unit="perplexities",
        send=complete,
        model=meant(policy, context.placement),
        weights=recheck_of(proof, policy, settings, log.add_compared),
        warn=context.warn,
    )


def _facts(log: AnswerLog) -> dict[str, Any]:
    compared = {"compared": log.compared} if log.compared else {}
    retried = {"retried": dict(sorted(log.retried.items()))} if log.retried else {}
    return {"servers": log.servers, **compared, **retried}


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


def mean_log_prob(answer: Mapping[str, Any], question: Question) -> float:
    """Read the mean log-prob of the response's tokens from a server's answer.

    Raises:
        Passing: The answer lacks log-probs, has another number of them, or has values that are no
            log-probs.
    """
    values = prompt_log_probs(answer, question.token_ids, question.start)
    return math.fsum(values) / len(values)


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
