"""The two ways to score: vLLM pooling servers, and a small model on this CPU.

    Pair(("9f0c…", 3), "Greet Ben.", "Hello Ben, welcome!") -> log line
    {"problem_id": "9f0c…", "sample_index": 3, "score": 1.84}

A response that has no score is not in the log, so a resumed run asks about it again. The reasons
are counted: it is longer than the model's context, or a server refuses it or answers too late.
"""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from pcl_reasoner.answers.failures import GivenUp
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schemas import Key
from pcl_reasoner.core.stage import NoProgress, Progress, StageContext
from pcl_reasoner.inference.addresses import Addresses, addresses
from pcl_reasoner.inference.answer_log import AnswerLog, Record
from pcl_reasoner.inference.asking import Asker
from pcl_reasoner.inference.fleet import Keys
from pcl_reasoner.inference.meant import Meant, meant
from pcl_reasoner.inference.questions import Questions
from pcl_reasoner.inference.server import SupervisedServer, started
from pcl_reasoner.inference.settings import SamplingConfig
from pcl_reasoner.prompt.model_files import open_tokenizer
from pcl_reasoner.prompt.template import load_template
from pcl_reasoner.verifiers.classify import (
    TOO_LONG,
    body_of,
    check_classifies,
    classify,
    read_score,
)
from pcl_reasoner.verifiers.preference_config import RewardModelConfig

REQUEST_SECONDS = 600.0
"""Seconds to wait for a score, including the time in the server's queue."""
RETRIES = 4
"""How often a request is sent again after a temporary failure."""
_PAIRS_AT_ONCE = 256
"""Pairs that the local scorer reads before it writes their scores."""


@dataclass(frozen=True)
class Pair:
    """A response to score.

    Args:
        key: The response's key.
        problem: The problem's text, the user's turn.
        answer: The text of the assistant's turn, from `answer_text`.
    """

    key: Key
    problem: str
    answer: str

    @property
    def messages(self) -> list[dict[str, str]]:
        """The conversation that the model reads."""
        user = {"role": "user", "content": self.problem}
        return [user, {"role": "assistant", "content": self.answer}]


class ScoreLog(AnswerLog):
    """The scores of a running stage.

    Args:
        path: The JSONL file; lines that a killed run left in it are kept.
    """

    def __init__(self, path: Path) -> None:
        self.scores: dict[Key, float] = {}
        super().__init__(path)

    def note(self, answer: Record) -> None:
        """Keep a score in memory."""
        self.scores[(answer["problem_id"], answer["sample_index"])] = answer["score"]


@dataclass
class Tally:
    """The scores of one set of pairs, and the pairs that get none.

    Args:
        log: Receives the scores.
        total: Number of pairs, those of earlier runs included.
        max_missing: Largest share of the pairs that may end without a score.
        progress: Receives the number of scores.
        missing: Key -> reason why the pair has no score.
    """

    log: ScoreLog
    total: int
    max_missing: float
    progress: Progress = field(default_factory=NoProgress)
    missing: dict[Key, str] = field(default_factory=dict)

    def miss(self, pair: Pair, kind: str, why: str) -> None:
        """Count a pair that has no score; ``kind`` is the reason that is counted.

        Raises:
            StageError: More than ``max_missing`` of the pairs have none.
        """
        self.missing[pair.key] = kind
        if len(self.missing) > self.max_missing * self.total:
            raise StageError(
                f"{len(self.missing)} of {self.total} responses have no score ({self.reasons()}), "
                f"the limit is max_missing {self.max_missing:.1%}. The last is "
                f"{pair.key[0]}/{pair.key[1]}: {why}. Raise the reward model's max_model_len if "
                "responses are too long, or fix its server, or raise max_missing; then run again: "
                "scores so far are kept."
            )

    def reasons(self) -> dict[str, int]:
        """Reason -> number of pairs without a score."""
        return dict(sorted(Counter(self.missing.values()).items()))

    def figures(self) -> dict[str, Any]:
        """Count ``scored``, ``missing`` by reason, and ``retried`` by kind of failure."""
        retried = {"retried": dict(sorted(self.log.retried.items()))} if self.log.retried else {}
        return {"scored": len(self.log), "missing": self.reasons(), **retried}


class Scorer(Protocol):
    """Scores sets of pairs, one after the other."""

    def score(self, pairs: Iterator[Pair], tally: Tally) -> None:
        """Score all pairs; each score is written to the tally's log as it arrives."""


class ServerScorer:
    """Scores with vLLM pooling servers.

    Args:
        config: The reward model's settings.
        urls: Servers that run already.
        servers: Servers that this process has started.
        model: What running servers must have; None: it is not known.
        warn: Receives warnings about running servers.
    """

    def __init__(
        self,
        config: RewardModelConfig,
        urls: Addresses,
        servers: list[SupervisedServer],
        model: Meant | None,
        warn: Callable[[str], None],
    ) -> None:
        self.model, self.settings = config.model, scoring_settings(config)
        self.urls, self.servers, self.meant = urls, servers, model
        self.warn = warn

    def score(self, pairs: Iterator[Pair], tally: Tally) -> None:
        """Score all pairs; the servers are checked before the first one.

        Raises:
            StageError: The servers fail or do not serve the reward model, a score is not finite,
                or too many pairs have no score.
        """
        Questions(
            self.settings,
            Keys("score_urls", "reward_model.model", "reward_model.max_model_len"),
            pairs,
            lambda asker, pair: self._ask(asker, pair, tally),
            tally.log,
            tally.progress,
            tally.total,
            "scores",
            send=classify,
            check=check_classifies,
            model=self.meant,
            warn=self.warn,
        ).ask(self.urls, self.servers)

    async def _ask(self, asker: Asker[Any], pair: Pair, tally: Tally) -> list[Record]:
        name = self.model
        try:
            body = body_of(name, pair.messages)
            score = await asker.ask(body, lambda answer, _, url: read_score(answer, name, url))
        except GivenUp as given_up:
            tally.miss(pair, given_up.kind, str(given_up))
            return []
        return [_line(pair, score)]


class FolderScorer:
    """Scores with a small model on this CPU.

    Args:
        config: The reward model's settings.
        folder: The reward model's folder.

    Raises:
        StageError: The folder has no reward model that the local scorer can read.
    """

    def __init__(self, config: RewardModelConfig, folder: Path) -> None:
        from pcl_reasoner.local_sampler.scorer import LocalScorer

        self.folder, self.scorer = folder, LocalScorer(folder, config.max_model_len)
        self.template = load_template(folder)
        self.tokenizer = open_tokenizer(folder / "tokenizer.json")

    def score(self, pairs: Iterator[Pair], tally: Tally) -> None:
        """Score all pairs.

        Raises:
            StageError: A score is not finite, or too many pairs have no score.
        """
        while batch := list(itertools.islice(pairs, _PAIRS_AT_ONCE)):
            ids = [self._encode(pair) for pair in batch]
            longest = self.scorer.longest
            for pair, one in zip(batch, ids, strict=True):
                if len(one) > longest:
                    tally.miss(pair, TOO_LONG, f"{len(one)} tokens, expected at most {longest}")
            fitting = [pair for pair in batch if pair.key not in tally.missing]
            scores = self.scorer.score([one for one in ids if len(one) <= longest])
            self._check(scores)
            tally.log.add(
                _line(pair, score) for pair, score in zip(fitting, scores.tolist(), strict=True)
            )
            tally.progress.update(len(tally.log), tally.total, "scores")

    def _encode(self, pair: Pair) -> list[int]:
        text = self.template.render(pair.messages, add_generation_prompt=False)
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def _check(self, scores: Iterable[float]) -> None:
        for score in scores:
            if not math.isfinite(score):
                raise StageError(
                    f"{self.folder}: the reward model's score is {score}, expected a finite "
                    "number. Check its weights."
                )


@contextmanager
def opened(
    config: RewardModelConfig, context: StageContext, model: Path | None, server_log: Path
) -> Iterator[Scorer]:
    """Load the reward model or start its servers; end the servers on exit.

    Args:
        config: The reward model's settings.
        context: ``placement.score_urls`` names the servers, or ``placement.scoring`` says how to
            start them.
        model: The reward model's folder; None only if ``placement.score_urls`` is used.
        server_log: File to which the output of servers that are started here is appended.

    Yields:
        The scorer; it can be used for any number of sets of pairs.

    Raises:
        StageError: No server is configured, or the model's folder is missing.
    """
    if config.engine == "local":
        yield FolderScorer(config, _folder(model, "engine: local"))
        return
    placement = context.placement
    urls = addresses(placement.urls_of("scoring"), placement)
    if not urls and placement.scoring is None:
        raise StageError(
            "the reward model needs a server: set placement.score_urls in the launch file, or "
            "have the stage start one: placement: {scoring: {executable: /path/to/vllm}}. A "
            "small model can be used here with engine: local."
        )
    folder = Path() if urls else _folder(model, "placement.scoring")
    with started(context, "scoring", folder, scoring_settings(config), server_log) as servers:
        yield ServerScorer(config, urls, servers, meant(model, placement), context.warn)


def _line(pair: Pair, score: float) -> Record:
    return {"problem_id": pair.key[0], "sample_index": pair.key[1], "score": score}


def scoring_settings(config: RewardModelConfig) -> SamplingConfig:
    """Return what servers and requests need: the model's name, context length and limits."""
    return SamplingConfig(
        n=1,
        served_model=config.model,
        max_model_len=config.max_model_len,
        concurrency=config.concurrency,
        request_timeout=REQUEST_SECONDS,
        retries=RETRIES,
    )


def _folder(model: Path | None, why: str) -> Path:
    """Return the model's folder.

    Raises:
        StageError: The stage has no input for it.
    """
    if model is None:
        raise StageError(
            f"{why} needs the reward model's weights: give the stage the input reward_model, e.g. "
            "inputs: {reward_model: SOURCE} with sources: {SOURCE: {path: FOLDER, kind: model}}."
        )
    return model
