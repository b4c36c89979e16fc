"""A task that a tiny model learns in minutes: running totals in short stories.

    problem   At the market, Ben has 9 books. Monday loses 3, Tuesday sells 2, Wednesday buys 4.
              How many books now?
    response  <think> Monday loses 3 9-3=6 Tuesday sells 2 6-2=4 Wednesday buys 4 4+4=8</think>
              <answer>\\boxed{8}</answer>
    answer    8

The teacher whose responses the policy learns from is hasty: in some of them it stops before the
last change and boxes the total so far. So the trained policy is right in part of its samples, and
there is one bad decision for reinforcement learning to remove. Problems differ in form, place,
person, thing, verbs and number of changes (so in length).
"""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass

NAMES = (
    "Ada",
    "Ben",
    "Cleo",
    "Dan",
    "Eva",
    "Finn",
    "Gus",
    "Hana",
    "Ivo",
    "Jon",
    "Kim",
    "Leo",
    "Mia",
    "Ned",
    "Oli",
    "Pam",
    "Rui",
    "Sam",
    "Tom",
    "Zoe",
)
THINGS = (
    "apples",
    "beads",
    "bells",
    "books",
    "boxes",
    "cards",
    "coins",
    "drums",
    "eggs",
    "flags",
    "gems",
    "hats",
    "keys",
    "lamps",
    "maps",
    "nuts",
    "pens",
    "plums",
    "rings",
    "seeds",
    "shells",
    "spoons",
    "stamps",
    "tiles",
)
PLACES = (
    "farm",
    "forest",
    "garden",
    "harbour",
    "library",
    "market",
    "museum",
    "school",
    "station",
    "theatre",
)
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
GAINS = ("gets", "finds", "buys", "wins", "earns", "borrows", "makes", "collects")
LOSSES = ("loses", "gives", "sells", "breaks", "lends", "drops", "eats", "burns")

LOWEST, HIGHEST = 1, 12
SMALLEST_CHANGE, LARGEST_CHANGE = 2, 5

FORMS = (
    "At the {place}, {name} has {start} {thing}. {changes}. How many {thing} now?",
    "{name} comes to the {place} with {start} {thing}. {changes}. How many {thing} are left?",
    "{start} {thing} are in the bag of {name} at the {place}. {changes}. How many in the end?",
)
PARAPHRASE = (
    "How many {thing} are there after all of this? {name} has {start} {thing}. {changes}. "
    "It happens at the {place}."
)


@dataclass(frozen=True)
class Problem:
    """One problem and its running totals.

    Args:
        problem: The question.
        paraphrase: The same question in other words.
        totals: The start and the total after each change.
        changes: Signed changes.
        verbs: The word of each change.
    """

    problem: str
    paraphrase: str
    totals: tuple[int, ...]
    changes: tuple[int, ...]
    verbs: tuple[str, ...]

    @property
    def answer(self) -> str:
        """The ground truth."""
        return str(self.totals[-1])

    def response(self, skipped: int = 0, remark: str = "") -> str:
        """A response that reckons all changes but the last ``skipped``.

        Args:
            skipped: Changes left out; 0 gives the right answer.
            remark: Words before the reckoning, so that chains of thought differ in length.
        """
        count = len(self.changes) - skipped
        steps = [
            f" {DAYS[i]} {self.verbs[i]} {abs(self.changes[i])} "
            f"{self.totals[i]}{self.changes[i]:+d}={self.totals[i + 1]}"
            for i in range(count)
        ]
        thought = remark + "".join(steps)
        return f"<think>{thought}</think><answer>\\boxed{{{self.totals[count]}}}</answer>"


def make_problem(rng: random.Random, changes: int) -> Problem:
    """Draw one problem.

    Args:
        rng: Source of randomness.
        changes: How many changes it has.
    """
    totals, signed, verbs = [rng.randint(LOWEST, HIGHEST)], [], []
    for _ in range(changes):
        size = rng.randint(SMALLEST_CHANGE, LARGEST_CHANGE)
        can_gain = totals[-1] + size <= HIGHEST
        can_lose = totals[-1] - size >= LOWEST
        gain = can_gain and (not can_lose or rng.random() < 0.5)
        signed.append(size if gain else -size)
        totals.append(totals[-1] + signed[-1])
        verbs.append(rng.choice(GAINS if gain else LOSSES))
    scene = {
        "name": rng.choice(NAMES),
        "thing": rng.choice(THINGS),
        "place": rng.choice(PLACES),
        "start": totals[0],
        "changes": ", ".join(
            f"{day} {verb} {abs(change)}"
            for day, verb, change in zip(DAYS, verbs, signed, strict=False)
        ),
    }
    return Problem(
        rng.choice(FORMS).format(**scene),
        PARAPHRASE.format(**scene),
        tuple(totals),
        tuple(signed),
        tuple(verbs),
    )


def make_problems(
    rng: random.Random, count: int, changes: Collection[int], taken: set[str]
) -> list[Problem]:
    """Draw distinct problems.

    Args:
        rng: Source of randomness.
        count: How many.
        changes: Numbers of changes to draw from.
        taken: Questions that are used already; those drawn are added.
    """
    found: list[Problem] = []
    choices = sorted(changes)
    while len(found) < count:
        problem = make_problem(rng, rng.choice(choices))
        if problem.problem not in taken:
            taken.add(problem.problem)
            found.append(problem)
    return found
