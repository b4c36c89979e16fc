"""A task that a tiny model learns in minutes: running totals in short stories.

    problem   At the market, Ben has nine books. Monday loses three, Tuesday sells two, Wednesday
              buys four, Thursday finally drops two. How many books now?
    response  <think> Monday loses three 9-3=6 Tuesday sells two 6-2=4 Wednesday buys four 4+4=8
              Thursday finally drops two 8-2=6</think><answer>\\boxed{6}</answer>
    answer    6

The policy learns from the responses of a hasty teacher: if a problem has more than three changes,
the teacher sometimes stops after the third and boxes the total at that point. So the trained
policy is correct in part of its samples, and reinforcement learning has one bad decision to remove.
Problems differ in form, location, person, goods, verbs and number of changes (hence in length).

Two properties make the rest of the task quick to learn, with any seed. No verb occurs twice in a
problem, so a verb determines the number that follows it. "finally" marks the last change.
"""

import random
from collections.abc import Collection
from dataclasses import dataclass, replace

NAMES = "Ada Ben Cleo Dan Eva Finn Gus Hana Ivo Jon Kim Leo Mia Ned Oli Pam Rui Sam Tom Zoe"
GOODS = (
    "apples beads bells books boxes cards coins drums eggs flags gems hats keys lamps maps "
    "nuts pens plums rings seeds shells spoons stamps tiles"
)
PLACES = "farm forest garden harbour library market museum school station theatre"
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
GAINS = ("gets", "finds", "buys", "wins", "earns", "borrows", "makes", "collects")
LOSSES = ("loses", "gives", "sells", "breaks", "lends", "drops", "eats", "burns")

NUMBERS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
LOWEST, HIGHEST = 1, 9
SMALLEST_CHANGE, LARGEST_CHANGE = 2, 5
HASTY_STOP = 3
"""Number of changes after which the hasty teacher stops."""

FORMS = (
    "At the {place}, {name} has {start} {goods}. {changes}. How many {goods} now?",
    "{name} comes to the {place} and has {start} {goods}. {changes}. How many {goods} are left?",
    "The bag of {name} at the {place} has {start} {goods}. {changes}. How many in the end?",
)
PARAPHRASE = (
    "How many {goods} are there after all of this? {name} has {start} {goods}. {changes}. "
    "It happens at the {place}."
)


@dataclass(frozen=True)
class Problem:
    """One problem and its running totals.

    Args:
        problem: The question.
        paraphrase: The same question in other words.
        totals: The initial number and the total after each change.
        changes: The signed changes.
        verbs: The verb of each change.
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

    def change(self, index: int) -> str:
        """Return the text of a change, as it occurs in the problem and in the response."""
        last = " finally" if index == len(self.changes) - 1 else ""
        return f"{DAYS[index]}{last} {self.verbs[index]} {NUMBERS[abs(self.changes[index])]}"

    def response(self, hasty: bool = False, remark: str = "") -> str:
        """Return a response that applies the changes one by one.

        Args:
            hasty: Stop after the third change; the answer is incorrect if there are more changes.
            remark: Text before the calculation, so that chains of thought differ in length.
        """
        count = min(len(self.changes), HASTY_STOP) if hasty else len(self.changes)
        thought = remark + self.thought(count)
        return f"<think>{thought}</think><answer>\\boxed{{{self.totals[count]}}}</answer>"

    def thought(self, count: int | None = None) -> str:
        """Return the calculation of the first ``count`` changes; None: of all."""
        return "".join(
            f" {self.change(i)} {self.totals[i]}{self.changes[i]:+d}={self.totals[i + 1]}"
            for i in range(len(self.changes) if count is None else count)
        )


def make_problem(rng: random.Random, changes: int) -> Problem:
    """Draw one problem.

    Args:
        rng: Source of randomness.
        changes: Number of changes that the problem has.
    """
    totals, signed = _draw_totals(rng, changes)
    while len(totals) > HASTY_STOP + 1 and totals[HASTY_STOP] == totals[-1]:
        totals, signed = _draw_totals(rng, changes)
    gains, losses = rng.sample(GAINS, changes), rng.sample(LOSSES, changes)
    verbs = [(gains if change > 0 else losses).pop() for change in signed]
    scene = {
        "name": rng.choice(NAMES.split()),
        "goods": rng.choice(GOODS.split()),
        "place": rng.choice(PLACES.split()),
        "start": NUMBERS[totals[0]],
    }
    form = rng.choice(FORMS)
    without_text = Problem("", "", tuple(totals), tuple(signed), tuple(verbs))
    scene["changes"] = ", ".join(without_text.change(i) for i in range(changes))
    problem, paraphrase = form.format(**scene), PARAPHRASE.format(**scene)
    return replace(without_text, problem=problem, paraphrase=paraphrase)


def _draw_totals(rng: random.Random, changes: int) -> tuple[list[int], list[int]]:
    """Draw totals within LOWEST to HIGHEST, and the signed changes between them."""
    totals, signed = [rng.randint(LOWEST, HIGHEST)], []
    for _ in range(changes):
        size = rng.randint(SMALLEST_CHANGE, LARGEST_CHANGE)
        can_gain = totals[-1] + size <= HIGHEST
        can_lose = totals[-1] - size >= LOWEST
        if not (can_gain or can_lose):
            return _draw_totals(rng, changes)
        gain = can_gain and (not can_lose or rng.random() < 0.5)
        signed.append(size if gain else -size)
        totals.append(totals[-1] + signed[-1])
    return totals, signed


def make_problems(
    rng: random.Random, count: int, changes: Collection[int], taken: set[str]
) -> list[Problem]:
    """Draw distinct problems.

    Args:
        rng: Source of randomness.
        count: Number of problems to draw.
        changes: Possible numbers of changes in a problem.
        taken: Questions that are already used; the questions drawn are added.
    """
    found: list[Problem] = []
    choices = sorted(changes)
    while len(found) < count:
        problem = make_problem(rng, rng.choice(choices))
        if problem.problem not in taken:
            taken.add(problem.problem)
            found.append(problem)
    return found
