"""Tasks of other kinds than stories, for the same tiny model: programs, lists of words, greetings.

    code         "Write f. Monday adds three, Tuesday doubles it, Wednesday finally takes two."
                 <think> x is given.</think><answer>
                 ```python
                 def f(x):
                  # Monday adds three
                  x=x+3 …
    instruction  "At the farm, name two goods for Ben in lower case, without commas."  -> eggs plums
    chat         "Greet Ben at the farm."      <think> …</think>Hello Ben, welcome to the farm.

The teacher has a bad habit in each: it forgets the last operation, writes capitals, is curt.
A program has a comment before each line: the model that has learned to copy the changes of a story
knows the operation then.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.kinds import Kind
from pcl_reasoner.synthetic.task import DAYS, GOODS, NAMES, NUMBERS, PLACES

FENCE = "```"
MAX_REPEATED = 10_000
"""Draws without a new task after which there is none left."""
TESTED = (0, 1, 2, 5, -3)
"""Arguments with which a program is tested."""
OPERATIONS = {
    "adds": "+",
    "takes": "-",
    "doubles it": "*2",
    "triples it": "*3",
    "squares it": "*x",
}
"""Words of an operation -> its sign, or the whole operation."""
WORDS = {"goods": GOODS, "places": PLACES}
"""Words of the stories, so that the tokenizer has a token for most of them."""
GREETING = "Hello {name}, welcome to the {place}, dear guest."
CURT = "Hi {name}."


@dataclass(frozen=True)
class Task:
    """One problem with the teacher's response.

    Args:
        kind: Its kind.
        problem: The question.
        checks: What verifies a response, in the form of a published data set.
        right: The careful response.
        careless: The response with the teacher's habit.
        solution: Code: a program that passes; else "".
    """

    kind: Kind
    problem: str
    checks: dict[str, Any]
    right: str
    careless: str
    solution: str = ""


def make_code(rng: random.Random, operations: int) -> Task:
    """Draw a program to write."""
    names = rng.sample(list(OPERATIONS), operations)
    steps = []
    for place, name in enumerate(names):
        number = rng.randint(2, 9)
        signed = OPERATIONS[name] in "+-"
        last = " finally" if place == operations - 1 else ""
        words = f"{DAYS[place]}{last} {name}{' ' + NUMBERS[number] if signed else ''}"
        steps.append((words, f"{OPERATIONS[name]}{number if signed else ''}"))
    problem = f"Write f. {', '.join(words for words, _ in steps)}."
    outputs = [_value(x, [code for _, code in steps]) for x in TESTED]
    checks = {"fn_name": "f", "inputs": [[x] for x in TESTED], "outputs": outputs}
    right, careless = _code(steps), _code(steps[:-1] or steps)
    return Task("code", problem, checks, right, careless, _program(steps))


def _value(x: int, steps: list[str]) -> int:
    for step in steps:
        number = x if step.endswith("x") else int(step[1:])
        x = {"+": x + number, "-": x - number, "*": x * number}[step[0]]
    return x


def _program(steps: list[tuple[str, str]]) -> str:
    lines = [f" # {words}\n x=x{code}" for words, code in steps]
    return "\n".join(["def f(x):", *lines, " return x"])


def _code(steps: list[tuple[str, str]]) -> str:
    program = f"{FENCE}python\n{_program(steps)}\n{FENCE}"
    return f"<think> x is given.</think><answer>\n{program}\n</answer>"


def make_instruction(rng: random.Random, words: int) -> Task:
    """Draw a list of words to write."""
    group = rng.choice(sorted(WORDS))
    chosen = rng.sample(WORDS[group].split(), words)
    whom = rng.choice(NAMES.split())
    place = rng.choice(PLACES.split())
    asked = f"name {NUMBERS[words]} {group} for {whom} in lower case, without commas"
    problem = f"At the {place}, {asked}."
    checks = {
        "instruction_id_list": [
            "length_constraints:number_words",
            "change_case:english_lowercase",
            "punctuation:no_comma",
        ],
        "kwargs": [{"relation": "less than", "num_words": words + 1}, {}, {}],
    }
    thought = f"<think> {NUMBERS[words]} {group}</think>"
    capital = " ".join(word.capitalize() for word in chosen)
    # After a blank, as in a story, a word is one token.
    right, careless = (f"{thought}<answer> {text}</answer>" for text in (" ".join(chosen), capital))
    return Task("instruction", problem, checks, right, careless)


def make_chat(rng: random.Random) -> Task:
    """Draw a greeting to write."""
    scene = {"name": rng.choice(NAMES.split()), "place": rng.choice(PLACES.split())}
    problem = "Greet {name} at the {place}.".format(**scene)
    thought = "<think> greet {name}</think>".format(**scene)
    right, careless = (f"{thought}<answer>{text}</answer>" for text in (GREETING, CURT))
    return Task("chat", problem, {}, right.format(**scene), careless.format(**scene))


def make_tasks(
    rng: random.Random, kind: Kind, count: int, sizes: list[int], taken: set[str]
) -> list[Task]:
    """Draw distinct tasks of a kind.

    Args:
        rng: Source of randomness.
        kind: ``code``, ``instruction`` or ``chat``.
        count: Number of tasks.
        sizes: Possible numbers of operations or words.
        taken: Questions that are used already; those drawn are added.

    Raises:
        StageError: There are fewer distinct tasks.
    """
    found: list[Task] = []
    repeated = 0
    while len(found) < count and repeated < MAX_REPEATED:
        task = _make(rng, kind, rng.choice(sizes))
        repeated += 1
        if task.problem not in taken:
            taken.add(task.problem)
            found.append(task)
            repeated = 0
    if len(found) < count:
        raise StageError(
            f"{count} distinct problems of kind {kind} were asked for, only {len(found)} were "
            f"found. Lower {kind}_problems."
        )
    return found


def _make(rng: random.Random, kind: Kind, size: int) -> Task:
    if kind == "code":
        return make_code(rng, size)
    return make_instruction(rng, size) if kind == "instruction" else make_chat(rng)
