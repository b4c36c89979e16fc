"""The problems whose ground truths are checked, with their votes and outcomes.

A line of revisions.jsonl, one per checked problem in the problems' order:

    {"problem_id": "9f0c…", "problem": "What is 6·7?", "original": "41", "majority": "42",
     "votes": {"42": 6, "41": 1}, "not_compared": 0, "responses": 8, "opinion": "42.0",
     "outcome": "revised"}
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pcl_reasoner.revise.config import ReviseConfig
from pcl_reasoner.revise.opinion import Opinion
from pcl_reasoner.revise.problems import Problem
from pcl_reasoner.revise.votes import Equal, Outcome, Votes, count_votes, decide, settle
from pcl_reasoner.verifiers.answers import ANSWERED


@dataclass
class Case:
    """A problem whose ground truth is checked.

    Args:
        problem: The problem.
        votes: The teacher's answers.
        majority: The most frequent answer; None if there is no majority.
        outcome: One of OUTCOMES; None while the ground truth is disputed.
        opinion: The third model's opinion; None if there is none.
    """

    problem: Problem
    votes: Votes
    majority: str | None
    outcome: Outcome | None
    opinion: Opinion | None = None

    @property
    def answer(self) -> str | None:
        """The third model's answer; None if there is no readable one."""
        return self.opinion.answer if self.opinion else None

    @property
    def ground_truth(self) -> str:
        """The ground truth after the revision: the third model's answer, in its own form."""
        if self.outcome == "revised" and self.answer is not None:
            return self.answer
        return self.problem.ground_truth

    def line(self) -> dict[str, Any]:
        """Return the line of revisions.jsonl."""
        return {
            "problem_id": self.problem.problem_id,
            "problem": self.problem.problem,
            "original": self.problem.ground_truth,
            "majority": self.majority,
            "votes": self.votes.classes,
            "not_compared": self.votes.not_compared,
            "responses": self.votes.responses,
            "opinion": self.answer,
            "outcome": self.outcome,
        }


def why_not_checked(problem: Problem) -> str | None:
    """Return why a ground truth is not checked: the problem's kind, or that it has no truth."""
    if problem.kind not in ANSWERED:
        return problem.kind
    return None if problem.ground_truth.strip() else "no_ground_truth"


def vote(
    problems: Iterable[Problem],
    answers: Mapping[str, list[str | None]],
    config: ReviseConfig,
    equal: Equal,
) -> Iterator[Case]:
    """Yield the case of each problem: agreed, disputed, or without a majority.

    Args:
        problems: The problems to check.
        answers: problem_id -> answers in sample order; a problem may be missing.
        config: Has the limits of a majority.
        equal: The comparison of two answers.
    """
    for problem in problems:
        votes = count_votes(answers.get(problem.problem_id, []), equal)
        limits = (config.min_votes, config.min_answered)
        decision = decide(votes, problem.ground_truth, *limits, equal)
        yield Case(problem, votes, decision.majority, decision.outcome)


def settle_case(case: Case, opinion: Opinion | None, config: ReviseConfig, equal: Equal) -> None:
    """Set the opinion and the outcome of a disputed case; it has a majority."""
    case.opinion = opinion
    original, majority = case.problem.ground_truth, case.majority or ""
    case.outcome = settle(original, majority, case.answer, config.disputed, equal)
