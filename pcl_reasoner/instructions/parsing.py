"""Instructions that a response must follow: read from a problem, applied to a text.

    checks["instructions"]
        [{"id": "length_constraints:number_words", "kwargs": {"relation": "less than",
                                                              "num_words": 40}},
         {"id": "punctuation:no_comma", "kwargs": {}}]
    text      "Cats, dogs and owls."
    all_of    [True, False]

checks.py has the checks. The text is the answer alone: what follows the think part,
without its tags; see ``without_answer_tags``.
"""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.files import nearest
from pcl_reasoner.instructions.checks import CHECKS
from pcl_reasoner.instructions.languages import LANGUAGES

Value = str | int | list[str]


@dataclass(frozen=True)
class Instruction:
    """One instruction of a problem.

    Args:
        id: One of IFEval's 25 ids, a key of CHECKS.
        kwargs: The parameters of its check, by their published names; all of them, none null.
    """

    id: str
    kwargs: Mapping[str, Value]


@dataclass(frozen=True)
class _Kind:
    """What the value of a parameter must be, in words and as a test."""

    expected: str
    fits: Callable[[object], bool]


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


_COUNT = _Kind("a whole number, 0 or more", _is_count)
_RELATION = _Kind("'at least' or 'less than'", lambda value: value in ("at least", "less than"))
_TEXT = _Kind("a text that is not blank", _is_text)
_TEXTS = _Kind(
    "a list of one or more texts that are not blank",
    lambda value: isinstance(value, list) and bool(value) and all(map(_is_text, value)),
)

_KINDS = {
    "keywords": _TEXTS,
    "keyword": _TEXT,
    "frequency": _COUNT,
    "relation": _RELATION,
    "forbidden_words": _TEXTS,
    "letter": _Kind("one character", lambda value: _is_text(value) and len(str(value)) == 1),
    "let_frequency": _COUNT,
    "let_relation": _RELATION,
    "language": _Kind("one of " + ", ".join(LANGUAGES), lambda value: value in LANGUAGES),
    "num_sentences": _COUNT,
    "num_paragraphs": _COUNT,
    "num_words": _COUNT,
    "nth_paragraph": _Kind("a whole number, 1 or more", lambda n: _is_count(n) and n != 0),
    "first_word": _Kind("one word", lambda value: _is_text(value) and len(str(value).split()) == 1),
    "num_placeholders": _COUNT,
    "postscript_marker": _TEXT,
    "num_bullets": _COUNT,
    "num_highlights": _COUNT,
    "section_spliter": _TEXT,
    "num_sections": _COUNT,
    "prompt_to_repeat": _TEXT,
    "end_phrase": _TEXT,
    "capital_frequency": _COUNT,
    "capital_relation": _RELATION,
}
"""Every published parameter. A name means the same in every check that has it."""


def parameters_of(instruction_id: str) -> tuple[str, ...]:
    """Return the names of the parameters of a check, in the order of its function.

    Args:
        instruction_id: A key of CHECKS.
    """
    return tuple(inspect.signature(CHECKS[instruction_id]).parameters)[1:]


def parse_instructions(value: object, where: str) -> list[Instruction]:
    """Read the instructions of a problem; parameters that are null are as good as absent.

    Args:
        value: What ``checks["instructions"]`` has: a list of objects with ``id`` and ``kwargs``.
        where: The problem, for messages, e.g. ``problems.parquet: problem 17``.

    Raises:
        StageError: The list is empty or malformed, an id or a parameter is unknown, a parameter is
            missing or has a wrong value. The message has all mistakes at once.
    """
    if not isinstance(value, list) or not value:
        raise StageError(
            f"{where}: instructions: got {_short(value)}, expected a list of one or more objects "
            "with id and kwargs."
        )
    instructions: list[Instruction] = []
    mistakes: list[str] = []
    for place, item in enumerate(value):
        found = _read(item)
        if isinstance(found, Instruction):
            instructions.append(found)
        else:
            mistakes += [f"instructions[{place}]: {mistake}" for mistake in found]
    if mistakes:
        raise StageError(f"{where}: {joined(mistakes)}")
    return instructions


def to_json(instructions: Sequence[Instruction]) -> list[dict[str, object]]:
    """Return instructions in the form that parse_instructions reads."""
    return [{"id": one.id, "kwargs": dict(one.kwargs)} for one in instructions]


def checked(instruction_id: object, kwargs: object) -> Instruction | list[str]:
    """Return an instruction, or everything that is wrong with its id and parameters.

    Args:
        instruction_id: Should be a key of CHECKS.
        kwargs: Should be a mapping of its parameters; None is none. Parameters with the value None
            are ignored.
    """
    if not isinstance(instruction_id, str) or instruction_id not in CHECKS:
        name = str(instruction_id)
        return [f"id {_short(instruction_id)} is unknown.{nearest(name, CHECKS)}"]
    if not isinstance(kwargs, dict | None):
        return [f"{instruction_id}: kwargs: got {_short(kwargs)}, expected an object."]
    given = {name: value for name, value in (kwargs or {}).items() if value is not None}
    mistakes = _mistakes(given, parameters_of(instruction_id))
    if mistakes:
        return [f"{instruction_id}: {mistake}" for mistake in mistakes]
    return Instruction(instruction_id, given)


def joined(mistakes: Sequence[str]) -> str:
    """Return one text of several mistakes, each on a line of its own if there are several."""
    if len(mistakes) == 1:
        return mistakes[0]
    return f"{len(mistakes)} mistakes:" + "".join(f"\n  - {mistake}" for mistake in mistakes)


def holds(instruction: Instruction, text: str) -> bool:
    """Whether a text follows an instruction. An empty text follows none, as in IFEval.

    Args:
        instruction: As parse_instructions returns it.
        text: The answer, without the think part and without tags.
    """
    return bool(text.strip()) and CHECKS[instruction.id](text, **instruction.kwargs)


def all_of(instructions: Sequence[Instruction], text: str) -> list[bool]:
    """Whether a text follows each instruction, in their order.

    Args:
        instructions: As parse_instructions returns them.
        text: The answer, without the think part and without tags.
    """
    return [holds(instruction, text) for instruction in instructions]


def without_answer_tags(answered: str) -> str:
    """Return the text after the think part without its outer tags ``<answer>`` and ``</answer>``.

    Args:
        answered: What follows ``</think>``, with or without the tags.
    """
    text = answered.strip().removeprefix("<answer>").removesuffix("</answer>")
    return text.strip()


def _read(item: object) -> Instruction | list[str]:
    if not isinstance(item, dict) or not {"id"} <= set(item) <= {"id", "kwargs"}:
        return [f"got {_short(item)}, expected an object with id and kwargs."]
    return checked(item["id"], item.get("kwargs"))


def _mistakes(given: Mapping[str, object], expected: Sequence[str]) -> list[str]:
    takes = f"It takes {', '.join(expected)}." if expected else "It takes none."
    mistakes = [
        f"parameter {name!r} is unknown.{nearest(name, expected)} {takes}"
        for name in given
        if name not in expected
    ]
    for name in expected:
        kind = _KINDS[name]
        if name not in given:
            mistakes.append(f"parameter {name!r} is missing; expected {kind.expected}.")
        elif not kind.fits(given[name]):
            mistakes.append(f"{name}: got {_short(given[name])}, expected {kind.expected}.")
    nth, paragraphs = given.get("nth_paragraph"), given.get("num_paragraphs")
    if not mistakes and isinstance(nth, int) and isinstance(paragraphs, int) and nth > paragraphs:
        mistakes.append(f"nth_paragraph: got {nth}, expected at most num_paragraphs, {paragraphs}.")
    return mistakes


def _short(value: object) -> str:
    return reprlib.repr(value)
