"""Find the most frequent answer to a problem, and decide about its ground truth.

    answers       008, 8, none, 9, 8.0      in sample order
    classes       {"008": 3, "9": 1}        a class of equivalent answers is named by its first
    majority      "008"
    ground truth  "9": disputed. The third model answers "8": revised, the ground truth is now "8"

Equivalence (math-verify) is neither symmetric nor transitive: 50\\% equals both 0.5 and 50.
Therefore an answer is compared only with the first answer of each class, in the order of the
classes, and joins the first class that matches. The answer of an earlier response, or the ground
truth where it takes part, is always the reference of a comparison.

Source: AM-Thinking-v1 (arXiv 2505.08311). It does not say what follows from ties, few votes, or an
opinion that equals neither answer; these rules are ours.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

Equal = Callable[[str, str], bool | None]
"""(answer, reference) -> whether they are equivalent; None if the comparison failed."""

Outcome = Literal[
    "agreed",
    "revised",
    "kept_upheld",
    "kept_disputed",
    "dropped_disputed",
    "no_majority",
    "not_compared",
]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
"""``agreed``: the majority equals the ground truth. ``revised``: the third model's answer equals
the majority, and is the new ground truth. ``kept_upheld``: its answer equals the ground truth.
``kept_disputed``, ``dropped_disputed``: its answer equals neither, or there is none.
``no_majority``: no answer is frequent enough. ``not_compared``: a comparison that decides about the
problem failed. The ground truth changes only in ``revised``."""


@dataclass(frozen=True)
class Votes:
    """The answers of the responses to one problem.

    Args:
        classes: First answer of each class -> number of answers in the class, in sample order.
        not_compared: Answers without a class, because a comparison failed.
        responses: All responses, including those without an answer.
    """

    classes: dict[str, int]
    not_compared: int
    responses: int

    @property
    def answered(self) -> int:
        """The number of responses with an answer."""
        return sum(self.classes.values()) + self.not_compared


@dataclass(frozen=True)
class Decision:
    """What the votes say about a ground truth.

    Args:
        outcome: One of OUTCOMES; None if the ground truth is disputed.
        majority: The first answer of the largest class; None if there is no majority.
    """

    outcome: Outcome | None
    majority: str | None = None


def count_votes(answers: Sequence[str | None], equal: Equal) -> Votes:
    """Divide answers into classes of equivalent answers.

    Args:
        answers: The answers to one problem in sample order; None for a response without an answer.
        equal: The comparison.
    """
    classes: dict[str, int] = {}
    not_compared = 0
    for answer in answers:
        if answer is None:
            continue
        first = _class_of(answer, classes, equal)
        if first is None:
            not_compared += 1
        else:
            classes[first] = classes.get(first, 0) + 1
    return Votes(classes, not_compared, len(answers))


def _class_of(answer: str, classes: dict[str, int], equal: Equal) -> str | None:
    """Return the class of an answer, which may be a new one; None if a comparison failed."""
    if answer in classes:
        return answer
    failed = False
    for first in classes:
        same = equal(answer, first)
        if same:
            return first
        failed |= same is None
    return None if failed else answer


def decide(
    votes: Votes, original: str, min_votes: int, min_answered: float, equal: Equal
) -> Decision:
    """Compare the majority of the votes with the ground truth.

    Answers that could not be compared may belong to any class. So there is a majority only if the
    largest class is larger than the second largest together with these answers.

    Args:
        votes: The result of count_votes.
        original: The ground truth.
        min_votes: Fewest answers in the largest class.
        min_answered: Smallest share of responses that must have an answer.
        equal: The comparison.
    """
    if not votes.answered or votes.answered / votes.responses < min_answered:
        return Decision("no_majority")
    largest, second, *_ = sorted([*votes.classes.values(), 0, 0], reverse=True)
    if largest < min_votes or largest <= second + votes.not_compared:
        return Decision("not_compared" if votes.not_compared else "no_majority")
    majority = max(votes.classes, key=votes.classes.__getitem__)
    same = equal(majority, original)
    if same is None:
        return Decision("not_compared", majority)
    return Decision("agreed" if same else None, majority)


def settle(
    original: str,
    majority: str,
    opinion: str | None,
    disputed: Literal["keep", "drop"],
    equal: Equal,
) -> Outcome:
    """Decide about a disputed ground truth with the third model's answer.

    Args:
        original: The ground truth.
        majority: The most frequent answer.
        opinion: The third model's answer; None if there is no readable one.
        disputed: Whether a problem is kept or dropped if the opinion equals neither answer.
        equal: The comparison.
    """
    undecided: Outcome = "kept_disputed" if disputed == "keep" else "dropped_disputed"
    if opinion is None:
        return undecided
    outcomes: dict[str, Outcome] = {majority: "revised", original: "kept_upheld"}
    for reference, outcome in outcomes.items():
        same = equal(opinion, reference)
        if same is None:
            return "not_compared"
        if same:
            return outcome
    return undecided
