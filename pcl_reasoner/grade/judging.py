"""Ask the judge about many responses, and keep its verdicts.

grading.json has the judge's settings and servers, and how many responses it judged:

    {"served_model": "Qwen3-32B", "temperature": 0.6, "top_k": 20, …, "thinking": true,
     "prompt_sha256": "5d1e…", "model_fingerprint": "77c0…", "servers": [{"url": "…", …}],
     "judged": 22990, "asked_again": 31, "unreadable": 4,
     "compared_with_rule": {"n": 391, "rule_correct_judge_correct": 350, …, "share": 0.97, …}}

The log of a running stage has one line per judged response:

    {"problem_id": "9f0c…", "sample_index": 3, "correct": true, "text": "equal. \\\\boxed{1}",
     "asked": 1}
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pcl_reasoner.core.artifact import fingerprint
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.files import shipped
from pcl_reasoner.core.schemas import Key
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.grade.config import JUDGE_LOG, GradeConfig
from pcl_reasoner.grade.judge import Judgement, JudgeQuestion, ask_judge, question_about
from pcl_reasoner.grade.reading import Responses, truth_of
from pcl_reasoner.grade.sampled import Sample, draw
from pcl_reasoner.inference.addresses import Addresses, addresses
from pcl_reasoner.inference.answer_log import AnswerLog, Record
from pcl_reasoner.inference.asking import Asker
from pcl_reasoner.inference.fleet import Keys
from pcl_reasoner.inference.meant import meant
from pcl_reasoner.inference.questions import Questions
from pcl_reasoner.inference.server import started
from pcl_reasoner.inference.settings import SamplingConfig
from pcl_reasoner.sample.generate import describe, log_beside

REQUEST_SECONDS = 1800.0
"""Seconds to wait for a reply, including the time in the server's queue."""
RETRIES = 4
"""How often a request is sent again after a temporary failure."""
KEYS = Keys("judge_urls", "judge_model", "judge_max_model_len")
"""Names of the judge's settings, for error messages."""
_TEXT_CHARACTERS = 2000
"""Characters kept at the end of a judge's reply, where the verdict and its reasons are."""
_DESCRIBED = (
    *("served_model", "temperature", "top_k", "top_p", "min_p", "repetition_penalty"),
    *("max_new_tokens", "max_model_len", "seed", "model_fingerprint", "template_sha256"),
)


class VerdictLog(AnswerLog):
    """The judgements of a running stage.

    Args:
        path: The JSONL file; lines that a killed run left in it are kept.
    """

    def __init__(self, path: Path) -> None:
        self.judgements: dict[Key, Judgement] = {}
        self._unreadable: set[Key] = set()
        super().__init__(path)

    def note(self, answer: Record) -> None:
        """Keep a judgement in memory."""
        key = answer["problem_id"], answer["sample_index"]
        self.judgements[key] = Judgement(answer["correct"], answer["text"], answer.get("asked", 1))
        if answer["correct"] is None:
            self._unreadable.add(key)
        else:
            self._unreadable.discard(key)

    def __contains__(self, key: object) -> bool:
        """Whether the judge gave a verdict; a resumed run asks once more where it gave none."""
        return super().__contains__(key) and key not in self._unreadable

    def forget_unreadable(self) -> None:
        """Drop the unreadable verdicts of an earlier run from memory: they are asked again."""
        for key in self._unreadable:
            self.judgements.pop(key, None)

    def info(self) -> dict[str, Any]:
        """Count judged responses, repeated questions, unreadable verdicts and failed requests."""
        found = self.judgements.values()
        return {
            "judged": len(found),
            "asked_again": sum(one.asked - 1 for one in found),
            "unreadable": sum(one.correct is None for one in found),
            **({"retried": dict(sorted(self.retried.items()))} if self.retried else {}),
        }


@dataclass(frozen=True)
class Judged:
    """The judgement of each response, the judge's settings and servers, and counts."""

    judgements: dict[Key, Judgement]
    described: dict[str, Any]
    figures: dict[str, Any]


def judge_all(
    config: GradeConfig,
    responses: Responses,
    output: Path,
    context: StageContext,
    model: Path | None,
) -> Judged:
    """Ask the judge about every response that has an answer; return its judgements.

    Method ``cascade`` asks only where the rule's verdict is uncertain (``unsure``). The others ask
    about a sample first, and compare it with the rule. A resumed run asks only about responses
    that have no verdict yet.

    Args:
        config: The settings of the stage ``grade``.
        responses: The responses, with their ground truths.
        output: The stage's folder; it has the log of judgements if an earlier run was killed.
        context: ``placement.judge_urls`` names the judge's servers, or ``placement.judging`` says
            how to start them. Their output is logged to ``logs`` beside the stage's folder.
        model: The judge's model folder; None if the stage has no input ``judge``.

    Raises:
        StageError: No server is configured or answers, too many replies are unreadable, or
            rule and judge agree too seldom.
    """
    urls = _urls(config, context)
    prompt, settings = _prompt(config), judge_settings(config)
    sample = draw(config, prompt, responses)
    log = VerdictLog(output / JUDGE_LOG)
    try:
        log.forget_unreadable()
        sample.check(log.judgements, config.least_agreement, log.path)
        questions = _questions(config, prompt, responses, log, sample)
        first = next(questions, None)
        if first is not None:
            remaining = itertools.chain([first], questions)
            given = (settings, KEYS, remaining, partial(_answer, config, log, sample), log)
            counted = (context.progress, responses.total, "judgements")
            served = meant(model, context.placement)
            asked = Questions(*given, *counted, model=served, warn=context.warn)
            told = (model or output, settings, log_beside(output, "judge"))
            with started(context, "judging", *told) as servers:
                asked.ask(urls, servers)
    finally:
        log.close()
    figures = _figures(config, log, sample)
    described = _describe(config, settings, prompt, model)
    return Judged(log.judgements, {**described, "servers": log.servers}, figures)


def _figures(config: GradeConfig, log: VerdictLog, sample: Sample) -> dict[str, Any]:
    """Return the counts of a complete log; StageError if the judge cannot be believed."""
    _check_missing(config, log.judgements)
    sample.check(log.judgements, config.least_agreement, log.path)
    found = log.info()
    if sample.ruled:
        found["compared_with_rule"] = sample.compared(log.judgements).figures()
    return found


def _urls(config: GradeConfig, context: StageContext) -> Addresses:
    """Return the addresses of running servers; empty if the stage starts its own.

    Raises:
        StageError: No server is configured.
    """
    urls = addresses(context.placement.urls_of("judging"), context.placement)
    if not urls and not context.placement.judging:
        raise StageError(
            f"method {config.method} needs a server: set placement.judge_urls in the launch file, "
            "or have the stage start one: placement: {judging: {executable: /path/to/vllm}}."
        )
    return urls


def judge_settings(config: GradeConfig) -> SamplingConfig:
    """Return the judge's sampling settings, with one reply per request."""
    return SamplingConfig(
        n=1,
        temperature=config.judge_temperature,
        top_k=config.judge_top_k,
        top_p=config.judge_top_p,
        min_p=config.judge_min_p,
        repetition_penalty=1.0,
        max_new_tokens=config.judge_max_new_tokens,
        max_model_len=config.judge_max_model_len,
        seed=config.seed,
        served_model=config.judge_model,
        concurrency=config.judge_concurrency,
        request_timeout=REQUEST_SECONDS,
        retries=RETRIES,
    )


async def _answer(
    config: GradeConfig,
    log: VerdictLog,
    sample: Sample,
    asker: Asker[Any],
    question: JudgeQuestion,
) -> list[Record]:
    """Ask one question, unless the sample shows that the judge is wrong."""
    sample.check(log.judgements, config.least_agreement, log.path)
    key, prompt = question
    name = f"{key[0]}/{key[1]}"
    judgement = await ask_judge(asker, name, prompt, config.judge_thinking, config.judge_attempts)
    return [log_line(key, judgement)]


def log_line(key: Key, judgement: Judgement) -> Record:
    """Return the line of the log for one response; it has only the end of the judge's reply."""
    kept = replace(judgement, text=judgement.text[-_TEXT_CHARACTERS:])
    return {"problem_id": key[0], "sample_index": key[1], **asdict(kept)}


def _describe(
    config: GradeConfig, settings: SamplingConfig, prompt: str, model: Path | None
) -> dict[str, Any]:
    """Return the judge's settings for grading.json; with a model folder, also its hashes."""
    found = describe(settings, model) if model else settings.model_dump(mode="json")
    return {
        **{name: found[name] for name in _DESCRIBED if name in found},
        "thinking": config.judge_thinking,
        "attempts": config.judge_attempts,
        "last_tokens": config.last_tokens,
        "prompt_sha256": fingerprint(prompt),
    }


def _questions(
    config: GradeConfig, prompt: str, responses: Responses, log: VerdictLog, sample: Sample
) -> Iterator[JudgeQuestion]:
    """Yield the questions without an answer in the log, those of the sample first."""
    yield from [one.question for key, one in sample.ruled.items() if key not in log]
    for batch in responses.with_questions():
        for record, question in batch:
            key = (record["problem_id"], record["sample_index"])
            if config.kinds[question.kind] != "answer" or key in sample.ruled or key in log:
                continue
            asked = question_about(config, prompt, record, truth_of(record, responses.truths))
            if asked is not None:
                yield asked


def _check_missing(config: GradeConfig, done: Mapping[Key, Judgement]) -> None:
    missing = sum(judgement.correct is None for judgement in done.values())
    if missing > config.max_missing * len(done):
        raise StageError(
            f"the judge left {missing} of {len(done)} responses without a readable verdict, the "
            f"limit is {config.max_missing:.1%}. Raise judge_max_new_tokens, change the prompt so "
            "that the judge ends with \\boxed{1} or \\boxed{0}, or raise max_missing. If the "
            "server was at fault, run again: these are asked once more."
        )


def _prompt(config: GradeConfig) -> str:
    file = Path(config.prompt) if config.prompt else shipped("recipes") / "prompts" / "judge.txt"
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StageError(f"{file}: the judge's prompt cannot be read ({error}).") from error
    absent = [name for name in ("{ground_truth}", "{candidate}") if name not in text]
    if absent:
        raise StageError(f"{file}: the judge's prompt lacks {' and '.join(absent)}.")
    return text
