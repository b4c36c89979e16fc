"""Rates responses by a rubric: a judge model gives three numbers from 0 to 10.

    prompt  … message: "Greet Ben." … answer: "Hello Ben, welcome!" …
    reply   "Warm, short, nothing is missing. \\\\boxed{9, 10, 8}"
    -> helpful 9, correct 10, coherent 8 -> reward (9 + 10 + 8) / 30 = 0.9

It is a choice in place of a reward model. The judge's servers and settings are those of the other
judgements (judging.py). The log of a running stage has one line per rated response:

    {"problem_id": "9f0c…", "sample_index": 3, "numbers": [9, 10, 8], "text": "Warm, …", "asked": 1}

A response that the servers refuse to rate, e.g. as it is longer than the judge's context, has no
line, so a resumed run asks about it again. The reasons are counted.
"""

import itertools
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pcl_reasoner.answers.chat import content_of
from pcl_reasoner.answers.failures import GivenUp
from pcl_reasoner.core.artifact import fingerprint
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.files import shipped
from pcl_reasoner.core.schemas import Key
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.grade.config import GradeConfig
from pcl_reasoner.grade.judge import body_for
from pcl_reasoner.grade.judging import KEYS, judge_settings
from pcl_reasoner.inference.addresses import addresses
from pcl_reasoner.inference.answer_log import AnswerLog, Record
from pcl_reasoner.inference.asking import Asker
from pcl_reasoner.inference.meant import meant
from pcl_reasoner.inference.questions import Questions
from pcl_reasoner.inference.server import started
from pcl_reasoner.sample.generate import log_beside
from pcl_reasoner.verifiers.answers import last_boxed, without_thinking
from pcl_reasoner.verifiers.logs import RATING_LOG
from pcl_reasoner.verifiers.preference_scorers import Pair

NUMBERS = ("helpful", "correct", "coherent")
"""The rubric's numbers, in the order of the box."""
LARGEST = 10
"""The best number; the worst is 0."""
FIELDS = ("{problem}", "{answer}")
"""What the prompt file must have."""
_TEXT_CHARACTERS = 2000
"""Characters kept at the end of a reply, where the numbers and their reasons are."""
_WHOLE = re.compile(r"10|[0-9]")


@dataclass(frozen=True)
class Rating:
    """The judge's numbers for one response.

    Args:
        numbers: One whole number per name in NUMBERS, from 0 to LARGEST; None if no reply had
            readable numbers.
        text: The judge's last reply.
        asked: How often the judge was asked.
    """

    numbers: tuple[int, ...] | None
    text: str
    asked: int = 1

    @property
    def reward(self) -> float | None:
        """The mean of the numbers, divided by LARGEST: in [0, 1]; None without numbers."""
        return None if self.numbers is None else sum(self.numbers) / (len(NUMBERS) * LARGEST)


def read_numbers(reply: str) -> tuple[int, ...] | None:
    """Return the numbers in the last box of a reply: ``\\boxed{7, 9, 8}`` -> (7, 9, 8).

    If the judge thinks first, only the text after its think part is read.

    Returns:
        The numbers; None if the box has anything but three whole numbers from 0 to LARGEST.
    """
    answered = without_thinking(reply)
    parts = [part.strip() for part in (last_boxed(answered or "") or "").split(",")]
    if len(parts) != len(NUMBERS) or not all(_WHOLE.fullmatch(part) for part in parts):
        return None
    return tuple(map(int, parts))


def fill_rubric(prompt: str, problem: str, answer: str) -> str:
    """Replace {problem} and {answer} in the prompt; other braces stay unchanged."""
    texts = dict(zip(FIELDS, (problem, answer), strict=True))
    pattern = "|".join(map(re.escape, FIELDS))
    return re.sub(pattern, lambda found: texts[found[0]], prompt)


class RatingLog(AnswerLog):
    """The ratings of a running stage.

    Args:
        path: The JSONL file; lines that a killed run left in it are kept.
    """

    def __init__(self, path: Path) -> None:
        self.ratings: dict[Key, Rating] = {}
        super().__init__(path)

    def note(self, answer: Record) -> None:
        """Keep a rating in memory."""
        numbers = answer["numbers"]
        rating = Rating(numbers and tuple(numbers), answer["text"], answer["asked"])
        self.ratings[(answer["problem_id"], answer["sample_index"])] = rating

    def info(self) -> dict[str, Any]:
        """Count rated responses, repeated questions, unreadable replies and failed requests."""
        found = self.ratings.values()
        return {
            "rated": len(found),
            "asked_again": sum(one.asked - 1 for one in found),
            "unreadable": sum(one.numbers is None for one in found),
            **({"retried": dict(sorted(self.retried.items()))} if self.retried else {}),
        }


@dataclass(frozen=True)
class Ratings:
    """The ratings of a stage's responses.

    Args:
        ratings: The rating of each response that the judge replied about.
        missing: Reason for each response that no server rates.
        described: The judge's servers and prompt.
        figures: Counts.
    """

    ratings: dict[Key, Rating]
    missing: dict[Key, str]
    described: dict[str, Any]
    figures: dict[str, Any]


def rate_all(
    config: GradeConfig,
    pairs: Iterable[Pair],
    total: int,
    output: Path,
    context: StageContext,
    model: Path | None,
    prompt_file: Path | None = None,
) -> Ratings:
    """Ask the judge about every pair that is not in the log yet; return all ratings.

    Args:
        config: The judge's settings, ``judge_*``, and ``max_missing``.
        pairs: The responses, in any order.
        total: Number of pairs, for progress.
        output: The stage's folder; it has the log of ratings if an earlier run was killed.
        context: ``placement.judge_urls`` names the judge's servers, or ``placement.judging`` says
            how to start them. Their output is logged to ``logs`` beside the stage's folder.
        model: The judge's model folder; None only if ``placement.judge_urls`` is used.
        prompt_file: A text with FIELDS; None for the shipped one.

    Raises:
        StageError: No server is configured or answers, or too many responses have no rating.
    """
    prompt = read_prompt(prompt_file)
    log = RatingLog(output / RATING_LOG)
    asking = _Asking(config, prompt, log, total, context)
    try:
        unrated = (pair for pair in pairs if pair.key not in log)
        first = next(unrated, None)
        if first is not None:
            asking.run(itertools.chain([first], unrated), model, output)
    finally:
        log.close()
    asking.check_limit(len(log) + len(asking.missing))
    described = {"prompt_sha256": fingerprint(prompt), "servers": log.servers}
    return Ratings(log.ratings, asking.missing, described, asking.figures())


@dataclass(frozen=True)
class _Asking:
    """Sends the remaining questions to the judge's servers, and logs the ratings.

    Args:
        config: As in `rate_all`.
        prompt: The rubric's prompt.
        log: Receives the ratings.
        total: Number of responses, those of earlier runs included.
        context: As in `rate_all`.
        missing: Key -> reason why no server rates the response.
    """

    config: GradeConfig
    prompt: str
    log: RatingLog
    total: int
    context: StageContext
    missing: dict[Key, str] = field(default_factory=dict)

    def run(self, pairs: Iterable[Pair], model: Path | None, output: Path) -> None:
        """Ask about all pairs, several at a time."""
        placement = self.context.placement
        urls = addresses(placement.urls_of("judging"), placement)
        if not urls and (placement.judging is None or model is None):
            raise StageError(
                "the rubric needs a judge: set placement.judge_urls in the launch file; or have "
                "the stage start one, with placement: {judging: {executable: /path/to/vllm}} and "
                "the input judge for its weights."
            )
        settings = judge_settings(self.config)
        server_log = log_beside(output, "judge")
        with started(self.context, "judging", model or output, settings, server_log) as servers:
            questions = Questions(
                settings,
                KEYS,
                iter(pairs),
                self._rate,
                self.log,
                self.context.progress,
                self.total,
                "ratings",
                model=meant(model, placement),
                warn=self.context.warn,
            )
            questions.ask(urls, servers)

    async def _rate(self, asker: Asker[Any], pair: Pair) -> list[Record]:
        """Ask until a reply has readable numbers, with another seed each time."""
        settings = asker.fleet.settings
        prompt = fill_rubric(self.prompt, pair.problem, pair.answer)
        rating = Rating(None, "", 0)
        while rating.numbers is None and rating.asked < self.config.judge_attempts:
            seed = settings.seed + rating.asked
            body = body_for(prompt, settings, self.config.judge_thinking, seed)
            try:
                reply = await asker.ask(body, content_of)
            except GivenUp as given_up:
                self.missing[pair.key] = given_up.kind
                self.check_limit(self.total, f" The last is {_name(pair.key)}: {given_up}.")
                return []
            rating = Rating(read_numbers(reply), reply, rating.asked + 1)
        kept = replace(rating, text=rating.text[-_TEXT_CHARACTERS:])
        numbers = kept.numbers and list(kept.numbers)
        line = {"numbers": numbers, "text": kept.text, "asked": kept.asked}
        return [{"problem_id": pair.key[0], "sample_index": pair.key[1], **line}]

    def check_limit(self, total: int, last: str = "") -> None:
        """Check how many responses have no rating.

        Args:
            total: Number of responses.
            last: What is known about the last one.

        Raises:
            StageError: More than ``max_missing`` of them have none.
        """
        unreadable = self.log.info()["unreadable"]
        if unreadable + len(self.missing) > self.config.max_missing * total:
            raise StageError(
                f"{unreadable + len(self.missing)} of {total} responses have no rating, the limit "
                f"is max_missing {self.config.max_missing:.1%}. Replies without three readable "
                f"numbers: {unreadable}; not answered: {self.reasons() or 0}.{last} Raise "
                "judge_max_new_tokens, or change the rubric's prompt so that the judge ends with "
                "\\boxed{helpful, correct, coherent}; if responses are too long, raise "
                "judge_max_model_len; or raise max_missing. Then run again: earlier ratings are "
                "kept."
            )

    def reasons(self) -> dict[str, int]:
        """Reason -> number of responses that no server rates."""
        return dict(sorted(Counter(self.missing.values()).items()))

    def figures(self) -> dict[str, Any]:
        """The counts of the log and, if there are any, ``missing`` by reason."""
        missing = {"missing": self.reasons()} if self.missing else {}
        return {**self.log.info(), **missing}


def _name(key: Key) -> str:
    return f"{key[0]}/{key[1]}"


def read_prompt(file: Path | None) -> str:
    """Return the rubric's prompt.

    Args:
        file: A text with FIELDS; None for the shipped one.

    Raises:
        StageError: The file cannot be read, or lacks a field.
    """
    file = file or shipped("recipes") / "prompts" / "rubric.txt"
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StageError(f"{file}: the rubric's prompt cannot be read ({error}).") from error
    absent = [name for name in FIELDS if name not in text]
    if absent:
        raise StageError(f"{file}: the rubric's prompt lacks {' and '.join(absent)}.")
    return text
