"""The problems that on-policy training asks, and which of them each round asks.

    5 problems, 2 per round
    pass 0, a permutation    d a | c e | b          rounds 0 and 1; b is not asked in this pass
    pass 1, another one      b d | e a | c          rounds 2 and 3

A round's problems are distinct, and depend only on the seed and the round.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.kinds import Kind
from pcl_reasoner.grade.config import KindMethod
from pcl_reasoner.grade.reading import Problems, Question
from pcl_reasoner.inference.dialogue import Dialogue, Problem, Prompt
from pcl_reasoner.rounds.config import RlConfig
from pcl_reasoner.verifiers.checked import read_checks
from pcl_reasoner.verifiers.held_out import read_problems
from pcl_reasoner.verifiers.kept_checks import KeptChecks

_ALL = 1_000_000
"""More held-out problems than any file has."""


@dataclass
class Pool:
    """Problems with their prompts.

    Args:
        prompts: Problem -> prompt, sorted by problem.
        problems: What grading needs of them.
    """

    prompts: dict[str, Prompt]
    problems: Problems | HeldOutProblems

    @property
    def names(self) -> list[str]:
        """The problems' ids, sorted."""
        return list(self.prompts)

    def kinds(self) -> list[str]:
        """Return each problem's kind, in the order of ``names``."""
        return [self.problems.question(name).kind for name in self.names]


class HeldOutProblems:
    """What grading needs of held-out problems, which are few.

    Args:
        path: The input ``held_out``: a folder with clean.parquet, or a benchmark's JSON lines.
        limit: Largest number of problems.
        kinds: Kinds that are asked; None: all.

    Raises:
        StageError: There are no problems, or a problem lacks its id, text or answer.
    """

    def __init__(self, path: Path, limit: int, kinds: Collection[str] | None) -> None:
        found = read_problems(path, _ALL, with_models=True)
        wanted = [one for one in found if kinds is None or one.get("kind", "math") in kinds]
        if not wanted:
            raise StageError(
                f"{path}: none of its {len(found)} problems is of kind {' or '.join(kinds or [])}, "
                "which rl.kinds names. Give other held-out problems."
            )
        self.items = {one["id"]: one for one in wanted[:limit]}

    def question(self, problem: str) -> Question:
        """Return what grading needs of a problem."""
        one: Any = self.items[problem]
        checks = read_checks(problem, one.get("checks") or "")
        return Question(one["problem"], one["answer"], one.get("kind", "math"), checks)


def read_pool(folder: Path, kept: KeptChecks, dialogue: Dialogue, config: RlConfig) -> Pool:
    """Read the problems to train on, and render their prompts.

    Args:
        folder: The input ``problems``, with clean.parquet.
        kept: Gets the problems' checks.
        dialogue: The policy's tokenizer and template.
        config: The stage's settings.

    Raises:
        StageError: A kind has no method, there are fewer problems than a round asks, or a prompt
            leaves no tokens for a response.
    """
    problems = Problems(folder, kept)
    wanted = config.kinds
    names = sorted(one for one in problems.truths if not wanted or problems.kind(one) in wanted)
    kinds = Counter(problems.kind(name) for name in names)
    if not names:
        raise StageError(
            f"{folder}: none of its {len(problems.truths)} problems is of kind "
            f"{' or '.join(wanted or [])}, which rl.kinds names. Correct kinds, or give others."
        )
    if len(names) < config.queries:
        raise StageError(
            f"{folder}: {len(names)} problems ({_counted(kinds)}), and a round asks rl.queries = "
            f"{config.queries} different ones. Lower queries, or give more problems."
        )
    first = {problems.kind(name): name for name in reversed(names)}
    _check_methods(folder, kinds, config)
    for kind, name in first.items():
        _check_gradable(folder, name, problems.question(name), config.grade.kinds[kind])
    asked = [Problem(name, problems.text(name), kind=problems.kind(name)) for name in names]
    return Pool(_prompts(asked, dialogue, folder), problems)


def read_held_out(path: Path, dialogue: Dialogue, config: RlConfig) -> Pool:
    """Read the held-out problems, and render their prompts.

    Raises:
        StageError: There are no problems, a kind has no method, a problem lacks its id, text or
            answer, or a prompt leaves no tokens for a response.
    """
    problems = HeldOutProblems(path, config.probe.problems, config.kinds)
    found = Counter(one.get("kind", "math") for one in problems.items.values())
    _check_methods(path, found, config)
    for name in problems.items:
        question = problems.question(name)
        _check_gradable(path, name, question, config.grade.kinds[question.kind])
    asked = [
        Problem(name, one["problem"], kind=one.get("kind", "math"))
        for name, one in sorted(problems.items.items())
    ]
    return Pool(_prompts(asked, dialogue, path), problems)


def check_apart(pool: Pool, held_out: Pool) -> None:
    """Refuse held-out problems that are trained on.

    Raises:
        StageError: A held-out problem has the id, or the text, of a problem to train on.
    """
    trained = set(pool.prompts) | {_text(pool, name) for name in pool.prompts}
    both = [
        name for name in held_out.prompts if name in trained or _text(held_out, name) in trained
    ]
    if both:
        raise StageError(
            f"{len(both)} held-out problems are also trained on (first: {', '.join(both[:3])}), so "
            "their accuracy would prove nothing. Give other held-out problems, or remove these "
            "from the problems."
        )


def queries_of(names: Sequence[str], config: RlConfig, number: int) -> list[str]:
    """Return the problems of a round, sorted.

    Args:
        names: All problems, sorted.
        config: Uses ``queries`` and ``seed``.
        number: The round, from 0.
    """
    import numpy as np

    per_pass = len(names) // config.queries
    which, place = divmod(number, per_pass)
    order = np.random.default_rng([config.seed, which]).permutation(len(names))
    chosen = order[place * config.queries : (place + 1) * config.queries]
    return sorted(names[index] for index in chosen)


def _check_methods(path: Path, kinds: Counter[Any], config: RlConfig) -> None:
    """Refuse problems whose kind has no method of grading."""
    for kind, count in kinds.items():
        if kind not in config.grade.kinds:
            raise StageError(
                f"{path}: {count} problems are of kind {kind}, and rl.grade.kinds says nothing "
                f"about it; it has {', '.join(config.grade.kinds)}. Add it, or remove the problems."
            )


def _check_gradable(path: Path, name: str, question: Question, method: KindMethod) -> None:
    """Refuse a problem that lacks what its method needs."""
    needed = {"answer": "answer", "tests": "checks.tests", "instructions": "checks.instructions"}
    there = {"answer": bool(question.truth), "reward_model": True}
    if there.get(method, method in question.checks):
        return
    raise StageError(
        f"{path}: problem {name} has no {needed[method]}, and rl.grade.kinds.{question.kind} is "
        f"{method}. Correct rl.grade.kinds, or give the problem its {needed[method]}."
    )


def _text(pool: Pool, name: str) -> str:
    return " ".join(pool.prompts[name].messages[-1]["content"].split())


def _counted(kinds: Mapping[Kind, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "none"


def _prompts(problems: Sequence[Problem], dialogue: Dialogue, where: Path) -> dict[str, Prompt]:
    found = {problem.id: dialogue.prompt(problem) for problem in problems}
    room = dialogue.settings.max_model_len
    long = [name for name, prompt in found.items() if len(prompt.ids) >= room]
    if long:
        raise StageError(
            f"{where}: the prompts of {len(long)} problems have {room} or more tokens "
            f"(first: {', '.join(long[:3])}), so no token of max_model_len is left for a response. "
            "Raise max_model_len, or remove these problems."
        )
    return found
