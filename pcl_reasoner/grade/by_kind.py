"""Grades responses whose problems are not graded by an answer: programs, instructions, texts.

    kind code         "```python\ndef f(x): …```"   all 10 tests passed     correct, score 1
    kind instruction  "dog, cat"                     2 of 3 instructions    passed_some, score 0.67
    kind chat         "Hello Ben, welcome!"          reward model: 1.84     scored, reward 0.86

What takes long (tests, scores, ratings) is done first, for all responses, and logged, so that a
killed run does not begin again. Then each response gets its verdict.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcl_reasoner.core.artifact import fingerprint
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.kinds import Kind
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.grade.config import GradeConfig, KindMethod
from pcl_reasoner.grade.reading import Question, Responses
from pcl_reasoner.inference.response_log import FAILED
from pcl_reasoner.sandbox.test_cases import TestCases
from pcl_reasoner.verifiers.answers import Verdict
from pcl_reasoner.verifiers.checked import (
    instructions_verdict,
    program_of,
    tests_of,
    tests_verdict,
)
from pcl_reasoner.verifiers.logs import LOGS

if TYPE_CHECKING:
    from pcl_reasoner.core.schemas import Key
    from pcl_reasoner.sandbox.run import Result
    from pcl_reasoner.verifiers.preference_scorers import Pair
    from pcl_reasoner.verifiers.programs import Program


@dataclass
class ByKind:
    """What was found out about the responses of some kinds.

    Args:
        config: How each kind is graded.
        tests: Result of each program.
        rewards: Reward of each response that a model, a judge or a function rated.
        scores: The raw number behind such a reward.
        details: More about such a reward, as JSON.
        unrated: Responses that got no rating.
        described: Settings and servers, for grading.json.
        figures: Counts, by method.
    """

    config: GradeConfig
    tests: dict[Key, Result] = field(default_factory=dict)
    rewards: dict[Key, float] = field(default_factory=dict)
    scores: dict[Key, float] = field(default_factory=dict)
    details: dict[Key, str] = field(default_factory=dict)
    unrated: set[Key] = field(default_factory=set)
    described: dict[str, Any] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)

    def verdict(self, record: Mapping[str, Any], question: Question) -> tuple[Verdict, str]:
        """Return a response's verdict, and what graded it.

        Raises:
            StageError: The problem lacks the tests or the instructions that its kind needs.
        """
        key: Key = (record["problem_id"], record["sample_index"])
        method = self.config.kinds[question.kind]
        if record["finish_reason"] in FAILED:
            return Verdict(record["finish_reason"], None), method
        response, reason = record["response"] or "", record["finish_reason"]
        config = self.config
        if method == "tests":
            weak_is_wrong = config.sandbox.weak == "refuse"
            result = self.tests.get(key)
            found = tests_verdict(result, response, reason, config.code_reward, weak_is_wrong)
        elif method == "instructions":
            rule = config.instruction_reward
            found = instructions_verdict(key[0], question.checks, response, rule)
        else:
            found = self._rated(key)
        return found, method

    def _rated(self, key: Key) -> Verdict:
        if key not in self.rewards:
            return Verdict("error" if key in self.unrated else "unfinished", None)
        score, detail = self.scores.get(key), self.details.get(key)
        return Verdict("scored", None, self.rewards[key], score, detail)


def verify_by_kind(
    config: GradeConfig,
    responses: Responses,
    inputs: Mapping[str, Path],
    output: Path,
    context: StageContext,
) -> ByKind:
    """Test, score and rate all responses whose kind needs it.

    Raises:
        StageError: A kind has no method, no sandbox or server can be had, or a problem lacks what
            its kind needs.
    """
    found = ByKind(config)
    counted = responses.count_by(lambda kind: _method(config, kind))
    if total := counted["tests"]:
        _test(found, responses, total, output, context)
    if total := counted["reward_model"]:
        _score(found, responses, total, inputs.get("reward_model"), output, context)
    if total := counted["rubric"]:
        _rate(found, responses, total, inputs.get("judge"), output, context)
    if total := counted["python"]:
        _call(found, responses, total, output, context)
    return found


def _method(config: GradeConfig, kind: Kind) -> KindMethod:
    """Return how a kind of problems is graded.

    Raises:
        StageError: The kind has no method.
    """
    if kind not in config.kinds:
        raise StageError(
            f"a problem has the kind {kind!r}, and grade.kinds says nothing about it; it has "
            f"{', '.join(config.kinds)}. Add the kind, or remove its problems."
        )
    return config.kinds[kind]


def _of(
    found: ByKind, responses: Responses, method: KindMethod
) -> Iterator[tuple[Key, dict[str, Any], Question]]:
    """Yield the responses that a method grades, as far as they came."""
    for batch in responses.with_questions():
        for record, question in batch:
            came = record["finish_reason"] not in FAILED
            if came and found.config.kinds[question.kind] == method:
                yield (record["problem_id"], record["sample_index"]), record, question


def _test(
    found: ByKind, responses: Responses, total: int, output: Path, context: StageContext
) -> None:
    from pcl_reasoner.verifiers.programs import Program, test_all

    config = found.config
    read: dict[str, TestCases] = {}

    def programs() -> Iterator[Program]:
        for key, record, question in _of(found, responses, "tests"):
            if key[0] not in read:
                # Only the present problem's, which may have megabytes of tests.
                read.clear()
                read[key[0]] = tests_of(key[0], question.kind, question.checks)
            tests = read[key[0]]
            code = program_of(record["response"] or "", tests)
            if code is not None:
                yield Program(key, code, tests)

    stop = config.code_reward == "all"
    tested = test_all(config.sandbox, programs(), total, output, context, stop)
    found.tests = tested.results
    found.described["sandbox"] = tested.described
    found.figures["programs"] = tested.figures
    if weak := tested.figures["weak_tests"]:
        context.warn(
            f"{weak} tests passed in the candidate's interpreter, because they look into its "
            "module: a program could pretend that. sandbox.weak: refuse counts them as failed."
        )


def _score(
    found: ByKind,
    responses: Responses,
    total: int,
    model: Path | None,
    output: Path,
    context: StageContext,
) -> None:
    from pcl_reasoner.verifiers.preference import reward_of, score_all

    config = found.config.reward_model
    pairs = _pairs(found, responses, "reward_model", config.with_thinking)
    scored = score_all(config, pairs, total, output, context, model)
    found.scores |= scored.scores
    found.rewards |= {key: reward_of(score, config) for key, score in scored.scores.items()}
    found.unrated |= set(scored.missing)
    found.described["reward_model"] = scored.described
    found.figures["scores"] = scored.figures


def _rate(
    found: ByKind,
    responses: Responses,
    total: int,
    model: Path | None,
    output: Path,
    context: StageContext,
) -> None:
    from pcl_reasoner.grade.rubric import NUMBERS, rate_all

    prompt = found.config.rubric_prompt
    pairs = _pairs(found, responses, "rubric", with_thinking=False)
    file = Path(prompt) if prompt else None
    rated = rate_all(found.config, pairs, total, output, context, model, file)
    for key, rating in rated.ratings.items():
        if rating.reward is None or rating.numbers is None:
            found.unrated.add(key)
        else:
            found.rewards[key] = found.scores[key] = rating.reward
            found.details[key] = json.dumps(dict(zip(NUMBERS, rating.numbers, strict=True)))
    found.unrated |= set(rated.missing)
    found.described["rubric"] = rated.described
    found.figures["ratings"] = {
        **rated.figures,
        "prompt_sha256": rated.described["prompt_sha256"],
    }


def _pairs(
    found: ByKind, responses: Responses, method: KindMethod, with_thinking: bool
) -> Iterable[Pair]:
    from pcl_reasoner.verifiers.preference import answer_text
    from pcl_reasoner.verifiers.preference_scorers import Pair

    for key, record, question in _of(found, responses, method):
        text = answer_text(record["response"] or "", with_thinking)
        if text is not None:
            yield Pair(key, question.problem, text)


def _call(
    found: ByKind, responses: Responses, total: int, output: Path, context: StageContext
) -> None:
    from pcl_reasoner.verifiers.python_reward import Asked, reward_all

    config = found.config
    assert config.python is not None
    asked = (
        Asked(key, question.problem, record["response"] or "", question.truth, question.checks)
        for key, record, question in _of(found, responses, "python")
    )
    rewarded = reward_all(config.python, config.sandbox, asked, total, output, context)
    for key, value in rewarded.rewards.items():
        found.rewards[key] = found.scores[key] = value.reward
        if value.why is not None:
            found.details[key] = json.dumps({"why": value.why}, ensure_ascii=False)
    code = Path(config.python.file).expanduser().read_text(encoding="utf-8")
    described = config.python.model_dump(mode="json")
    found.described["python"] = {
        **described,
        "file_sha256": fingerprint(code),
        "interpreter": rewarded.described,
    }
    found.figures["python"] = {"called": total}


def delete_logs(output: Path) -> None:
    """Delete the logs of a stage that has written its verdicts."""
    for name in LOGS:
        with suppress(FileNotFoundError):
            (output / name).unlink()
