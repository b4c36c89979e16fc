"""Ask a third model, on an OpenAI-compatible server, about the disputed problems.

    prompt  "What is 6·7?\\nReason step by step and put the final answer in \\\\boxed{}."
    reply   "<think>…</think>It is \\\\boxed{42}." -> opinion "42"

The log of a running stage has one line per opinion; a resumed run asks only about the others:

    {"problem_id": "9f0c…", "sample_index": 0, "answer": "42", "text": "… \\\\boxed{42}.",
     "asked": 1}
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pcl_reasoner.answers.chat import ChatAnswer, content_of
from pcl_reasoner.answers.failures import GivenUp
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.grade.judge import body_for
from pcl_reasoner.inference.addresses import Addresses
from pcl_reasoner.inference.answer_log import AnswerLog, Record
from pcl_reasoner.inference.asking import Asker
from pcl_reasoner.inference.fleet import Keys
from pcl_reasoner.inference.questions import Questions
from pcl_reasoner.inference.settings import SamplingConfig
from pcl_reasoner.revise.config import ReviseConfig
from pcl_reasoner.revise.opinion import TEXT_CHARACTERS, Opinion, read_reply

REQUEST_SECONDS = 3600.0
"""Seconds to wait for a reply, including the time in the server's queue."""
RETRIES = 4
"""How often a request is sent again after a temporary failure."""
KEYS = Keys("opinion_urls", "opinion_model", "opinion_max_model_len")
REFUSALS = ("status 400", "status 413", "status 422")
"""Kinds of failures that only one question has, e.g. a problem that is too long. After any other
failure, except a timeout, the server is at fault, so the other questions would fail, too."""
FAILURES_SHOWN = 5
"""Number of failed requests that get a warning each; later failures are only counted."""


class OpinionLog(AnswerLog):
    """The opinions of a running stage.

    Args:
        path: The JSONL file; lines that a killed run left in it are kept.
    """

    def __init__(self, path: Path) -> None:
        self.opinions: dict[str, Opinion] = {}
        super().__init__(path)

    def note(self, answer: Record) -> None:
        """Keep an opinion in memory."""
        opinion = Opinion(answer["answer"], answer["text"], answer["asked"])
        self.opinions[answer["problem_id"]] = opinion


@dataclass(frozen=True)
class Asked:
    """What the servers answered.

    Args:
        opinions: problem_id -> opinion; problems whose request failed for good are missing.
        failed: Number of these problems.
        facts: The model's settings, the servers, and the counts of repeated requests.
    """

    opinions: dict[str, Opinion]
    failed: int
    facts: dict[str, Any]


def ask_opinions(
    config: ReviseConfig,
    questions: Mapping[str, str],
    urls: Addresses,
    file: Path,
    context: StageContext,
) -> Asked:
    """Ask about every problem that has no opinion in the log yet.

    Args:
        config: The settings of the stage.
        questions: problem_id -> the problem's text.
        urls: The servers, at least one.
        file: The log; it has opinions if an earlier run was killed.
        context: Receives progress and warnings.

    Raises:
        StageError: No server answers, a server offers another model, or too many requests fail.
    """
    log = OpinionLog(file)
    third = _Third(config, questions, log, context)
    remaining = [name for name in questions if (name, 0) not in log]
    try:
        if remaining:
            Questions(
                sampling_of(config),
                KEYS,
                iter(remaining),
                third.answer,
                log,
                context.progress,
                len(questions),
                "opinions",
                warn=context.warn,
            ).ask(urls, [])
    finally:
        log.close()
    model = {name: value for name, value in config.hashed().items() if name.startswith("opinion_")}
    retried = {"retried": dict(sorted(log.retried.items()))} if log.retried else {}
    facts = {**model, "seed": config.seed, "servers": log.servers, **retried}
    opinions = {name: log.opinions[name] for name in questions if name in log.opinions}
    return Asked(opinions, len(third.failed), facts)


def sampling_of(config: ReviseConfig) -> SamplingConfig:
    """Return the third model's sampling settings, with one reply per request."""
    return SamplingConfig(
        n=1,
        temperature=config.opinion_temperature,
        top_k=config.opinion_top_k,
        top_p=config.opinion_top_p,
        max_new_tokens=config.opinion_max_new_tokens,
        max_model_len=config.opinion_max_model_len,
        seed=config.seed,
        served_model=config.opinion_model,
        concurrency=config.opinion_concurrency,
        request_timeout=REQUEST_SECONDS,
        retries=RETRIES,
    )


@dataclass
class _Third:
    """The third model: asks it one question at a time."""

    config: ReviseConfig
    questions: Mapping[str, str]
    log: OpinionLog
    context: StageContext
    failed: list[str] = field(default_factory=list)

    async def answer(self, asker: Asker[Any], name: str) -> list[Record]:
        """Return the line of the log for one problem; none if the question failed for good."""
        try:
            opinion = await self._ask(asker, self.questions[name])
        except GivenUp as given_up:
            self._note_failure(name, given_up)
            return []
        return [{"problem_id": name, "sample_index": 0, **asdict(opinion)}]

    async def _ask(self, asker: Asker[Any], problem: str) -> Opinion:
        """Ask until a reply has a readable answer, with another seed each time."""
        answer, text, asked = None, "", 0
        while answer is None and asked < self.config.opinion_attempts:
            body = self._body(asker.fleet.settings, problem, self.config.seed + asked)
            text, finish_reason = await asker.ask(body, _reply)
            answer, asked = read_reply(text, finish_reason), asked + 1
        return Opinion(answer, text[-TEXT_CHARACTERS:], asked)

    def _body(self, settings: SamplingConfig, problem: str, seed: int) -> dict[str, Any]:
        """Return a request's JSON; for missing fields the server uses its own defaults."""
        prompt = problem + self.config.opinion_suffix
        body = body_for(prompt, settings, self.config.opinion_thinking, seed)
        if self.config.opinion_api == "vllm":
            return body
        fields = {name: body[name] for name in ("model", "messages", "n")}
        return {**fields, "max_completion_tokens": body["max_tokens"]}

    def _note_failure(self, name: str, given_up: GivenUp) -> None:
        """Count a question that failed for good. It is not logged: a resumed run asks it again.

        Raises:
            StageError: The server is at fault, or more questions failed than max_missing allows.
        """
        kept = f"{len(self.log)} opinions are kept"
        if given_up.finish_reason != "timeout" and given_up.kind not in REFUSALS:
            raise StageError(
                f"the third model does not answer about problem {name} ({given_up}). Check "
                f"placement.opinion_urls and the settings opinion_*, then run again: {kept}."
            )
        self.failed.append(name)
        if len(self.failed) <= FAILURES_SHOWN:
            self.context.warn(f"problem {name}: request failed for good: {given_up}.")
        if len(self.failed) > self.config.max_missing * len(self.questions):
            raise StageError(
                f"{len(self.failed)} of {len(self.questions)} requests for an opinion failed, the "
                f"limit is max_missing {self.config.max_missing:.0%}. The last: {given_up}. Check "
                f"the settings opinion_* and the server, then run again: {kept}."
            )


def _reply(answer: ChatAnswer, seconds: float, url: str) -> tuple[str, str]:
    """Return a reply's text and finish reason.

    Raises:
        Passing: The answer has no message, so the request is sent again.
    """
    text = content_of(answer, seconds, url)
    return text, answer.choices[0].finish_reason or "stop"
