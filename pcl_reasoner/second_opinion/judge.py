"""Asks a judge model, on an OpenAI-compatible server, about pairs of a text and a question.

    texts     {17: [(text 17, question 3), (text 17, question 8)], 40: [(text 40, question 3)]}
    round 1   pairs (17, 3) and (40, 3): no, yes     round 2   pair (17, 8): yes
    opinions  {17: [no, yes], 40: [yes]}

The pairs of a text are asked one after the other, the closest first, until the judge says yes. Only
pairs whose verdict is not in the cache are sent; no server is started if there is none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any

from pcl_reasoner.answers.chat import ChatAnswer, content_of
from pcl_reasoner.answers.failures import GivenUp
from pcl_reasoner.core.artifact import fingerprint
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.grade.judge import body_for
from pcl_reasoner.inference.addresses import addresses
from pcl_reasoner.inference.answer_log import Record
from pcl_reasoner.inference.asking import Asker
from pcl_reasoner.inference.fleet import Keys
from pcl_reasoner.inference.questions import Questions
from pcl_reasoner.inference.server import SupervisedServer, started
from pcl_reasoner.inference.settings import SamplingConfig
from pcl_reasoner.sample.generate import describe, log_beside
from pcl_reasoner.second_opinion.config import JudgeConfig
from pcl_reasoner.second_opinion.prompt import fill, read_prompt, read_verdict
from pcl_reasoner.second_opinion.verdict_cache import Opinion, VerdictCache, log_line, opened

REQUEST_SECONDS = 1800.0
"""Seconds to wait for a reply, including the time in the server's queue."""
RETRIES = 4
"""How often a request is sent again after a temporary failure."""
KEYS = Keys("judge_urls", "judge.model", "judge.max_model_len")
"""Names of the judge's settings, for error messages."""
REFUSALS = ("status 400", "status 413", "status 422")
"""Failures that only one pair has, e.g. a text that is too long for the judge's context."""
TEXT_CHARACTERS = 2000
"""Characters kept at the end of a judge's reply, where the verdict and its reasons are."""
_HASHED = (
    *("served_model", "temperature", "top_k", "top_p", "min_p", "repetition_penalty"),
    *("max_new_tokens", "seed", "model_fingerprint", "template_sha256"),
)

Pair = tuple[str, str]
"""(Text of the data, benchmark question)."""
Request = tuple[str, str]
"""(Hash of the filled prompt, the filled prompt)."""


class Judge:
    """Asks the judge, and keeps its verdicts in a cache.

    Args:
        config: The judge's settings.
        context: ``placement.judge_urls`` names running servers, or ``placement.judging`` says how
            to start them. Receives progress and warnings.
        output: The check's folder; the log of a server that is started is beside it.
        cache: Folder for the verdicts; None: a temporary folder.
        model: The judge's model folder; None: only its name is known.

    Raises:
        StageError: No server is configured, or the prompt cannot be read.
    """

    def __init__(
        self,
        config: JudgeConfig,
        context: StageContext,
        output: Path,
        cache: Path | None = None,
        model: Path | None = None,
    ) -> None:
        self.config, self._context, self._output = config, context, output
        self._cache, self._model = cache, model
        self._urls = addresses(context.placement.urls_of("judging"), context.placement)
        if not self._urls and context.placement.judging is None:
            raise StageError(
                "contamination: judge is set, but there is no server to ask. Set "
                "placement.judge_urls in the launch file, or have the stage start a server: "
                "placement: {judging: {executable: /path/to/vllm}}, or give --judge URL to the "
                "command. Without the setting judge, the rules decide alone."
            )
        self._prompt = read_prompt(config.prompt)
        self._settings = _settings(config)
        self._failed: dict[str, Opinion] = {}
        """Hash of a filled prompt -> why its request failed for good; these are not cached."""
        self._servers: list[dict[str, Any]] = []

    @cached_property
    def described(self) -> dict[str, Any]:
        """What decides the verdicts besides the pair: model, sampling settings and prompt."""
        settings, model = self._settings, self._model
        found = describe(settings, model) if model else settings.model_dump(mode="json")
        return {
            **{name: found[name] for name in _HASHED if name in found},
            "thinking": self.config.thinking,
            "attempts": self.config.attempts,
            "prompt_sha256": fingerprint(self._prompt),
        }

    def facts(self) -> dict[str, Any]:
        """The judge, its settings and the servers that answered, for the report."""
        return {**self.described, "characters": self.config.characters, "servers": self._servers}

    def is_cut(self, pair: Pair) -> bool:
        """True if the judge does not see all of a pair."""
        return max(map(len, pair)) > self.config.characters

    def ask(self, texts: Mapping[int, Sequence[Pair]]) -> dict[int, list[Opinion]]:
        """Ask about the pairs of texts, each text's in their order, until the judge says yes.

        Args:
            texts: Any key -> its pairs, closest first; only the first ``questions`` are asked.

        Returns:
            Key -> the opinions on its first pairs, in their order.

        Raises:
            StageError: No server answers, or one offers another model.
        """
        found: dict[int, list[Opinion]] = {key: [] for key in texts}
        with opened(self._cache, fingerprint(self.described)) as cache, ExitStack() as running:
            servers: list[SupervisedServer] | None = None
            for place in range(self.config.questions):
                requests = {
                    key: self._request(pairs[place])
                    for key, pairs in texts.items()
                    if place < len(pairs) and not any(one.same for one in found[key])
                }
                missing = {name: text for name, text in requests.values() if (name, 0) not in cache}
                if missing and servers is None:
                    servers = running.enter_context(self._started())
                if missing:
                    self._ask(missing, cache, servers or [])
                for key, (name, _) in requests.items():
                    found[key].append(cache.opinions.get(name) or self._failed[name])
            self._servers = cache.servers
        self._warn_of_failures()
        return found

    def _started(self) -> Any:
        log = log_beside(self._output, "judge")
        model = self._model or self._output
        return started(self._context, "judging", model, self._settings, log)

    def _request(self, pair: Pair) -> Request:
        prompt = fill(self._prompt, *pair, self.config.characters)
        return fingerprint(prompt), prompt

    def _ask(
        self, missing: Mapping[str, str], cache: VerdictCache, servers: list[SupervisedServer]
    ) -> None:
        Questions(
            self._settings,
            KEYS,
            iter(missing.items()),
            self._answer,
            cache,
            self._context.progress,
            len(cache) + len(missing),
            "verdicts",
            warn=self._context.warn,
        ).ask(self._urls, servers)

    async def _answer(self, asker: Asker[Any], request: Request) -> list[Record]:
        """Return the line of the cache for one pair; none if its request failed for good."""
        name, prompt = request
        same, text, asked = None, "", 0
        try:
            while same is None and asked < self.config.attempts:
                seed = self.config.seed + asked
                body = body_for(prompt, self._settings, self.config.thinking, seed)
                text, finish_reason = await asker.ask(body, _reply)
                same, asked = read_verdict(text, finish_reason), asked + 1
        except GivenUp as given_up:
            self._failed[name] = _failure(given_up)
            return []
        return [log_line(name, Opinion(same, text[-TEXT_CHARACTERS:], asked))]

    def warn(self, message: str) -> None:
        """Record a warning."""
        self._context.warn(message)

    def _warn_of_failures(self) -> None:
        if self._failed:
            last = next(reversed(self._failed.values()))
            self.warn(
                f"the judge refused {len(self._failed)} pairs, and the rules decided about them. "
                f"The last: {last.text}. Lower judge.characters or raise judge.max_model_len, if "
                "they are too long."
            )


def _settings(config: JudgeConfig) -> SamplingConfig:
    """Return the judge's sampling settings, with one reply per request."""
    return SamplingConfig(
        n=1,
        temperature=config.temperature,
        top_k=config.top_k,
        top_p=config.top_p,
        min_p=config.min_p,
        repetition_penalty=1.0,
        max_new_tokens=config.max_new_tokens,
        max_model_len=config.max_model_len,
        seed=config.seed,
        served_model=config.model,
        concurrency=config.concurrency,
        request_timeout=REQUEST_SECONDS,
        retries=RETRIES,
    )


def _reply(answer: ChatAnswer, seconds: float, url: str) -> tuple[str, str]:
    """Return a reply's text and finish reason; a ``read`` function of `Asker.ask`."""
    return content_of(answer, seconds, url), answer.choices[0].finish_reason or "stop"


def _failure(given_up: GivenUp) -> Opinion:
    """Return the opinion on a pair whose request failed for good: none.

    Raises:
        StageError: The server is at fault, so the other requests would fail, too.
    """
    if given_up.finish_reason != "timeout" and given_up.kind not in REFUSALS:
        raise StageError(
            f"the judge does not answer ({given_up}). Check placement.judge_urls or "
            "placement.judging, and the settings of judge, then run again: earlier verdicts "
            "are kept."
        )
    return Opinion(None, f"request failed: {given_up}", 0)
