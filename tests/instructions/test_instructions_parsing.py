"""Instructions as a problem stores them: read, refused with all mistakes, applied."""

from __future__ import annotations

import json

import pytest

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.instructions import parsing
from pcl_reasoner.instructions.checks import CHECKS
from pcl_reasoner.instructions.parsing import (
    Instruction,
    all_of,
    holds,
    parameters_of,
    parse_instructions,
    to_json,
    without_answer_tags,
)

WORDS = "length_constraints:number_words"
STORED = [
    {"id": WORDS, "kwargs": {"relation": "less than", "num_words": 4, "letter": None}},
    {"id": "punctuation:no_comma", "kwargs": {}},
    {"id": "startend:quotation", "kwargs": None},
    {"id": "detectable_format:title"},
]


def refusal(value: object) -> str:
    with pytest.raises(StageError) as error:
        parse_instructions(value, "problem 17")
    return str(error.value)


def test_reads_what_is_stored_and_ignores_null() -> None:
    read = parse_instructions(STORED, "problem 17")
    assert read == [
        Instruction(WORDS, {"relation": "less than", "num_words": 4}),
        Instruction("punctuation:no_comma", {}),
        Instruction("startend:quotation", {}),
        Instruction("detectable_format:title", {}),
    ]
    assert parse_instructions(json.loads(json.dumps(to_json(read))), "again") == read


def test_each_instruction_has_its_verdict() -> None:
    read = parse_instructions(STORED, "problem 17")
    assert all_of(read, '"Cats, dogs"') == [True, False, True, False]
    assert all_of(read, "<<Cats>> and dogs, owls") == [False, False, False, True]
    assert all_of(read, "") == [False] * 4
    assert holds(read[0], "three little words") and not holds(read[0], "four very little words")


def test_an_unknown_id_names_the_nearest() -> None:
    message = refusal([{"id": "keywords:existance", "kwargs": {}}])
    assert message == (
        "problem 17: instructions[0]: id 'keywords:existance' is unknown. "
        "Did you mean 'keywords:existence'?"
    )


def test_all_mistakes_are_told_at_once() -> None:
    message = refusal(
        [
            {"id": WORDS, "kwargs": {"num_word": 4, "relation": "at most"}},
            {"id": "punctuation:no_comma", "kwargs": {"letter": "a"}},
            {"id": 3},
            "startend:quotation",
            {"id": WORDS, "kwargs": [4]},
            {"id": "startend:quotation", "args": {}},
        ]
    )
    assert message.splitlines() == [
        "problem 17: 8 mistakes:",
        f"  - instructions[0]: {WORDS}: parameter 'num_word' is unknown. "
        "Did you mean 'num_words'? It takes num_words, relation.",
        f"  - instructions[0]: {WORDS}: parameter 'num_words' is missing; "
        "expected a whole number, 0 or more.",
        f"  - instructions[0]: {WORDS}: relation: got 'at most', "
        "expected 'at least' or 'less than'.",
        "  - instructions[1]: punctuation:no_comma: parameter 'letter' is unknown. It takes none.",
        "  - instructions[2]: id 3 is unknown.",
        "  - instructions[3]: got 'startend:quotation', expected an object with id and kwargs.",
        f"  - instructions[4]: {WORDS}: kwargs: got [4], expected an object.",
        "  - instructions[5]: got {'args': {}, 'id': 'startend:quotation'}, "
        "expected an object with id and kwargs.",
    ]


@pytest.mark.parametrize("value", [None, [], {}, "keywords:existence"])
def test_a_problem_without_a_list_of_instructions_is_refused(value: object) -> None:
    assert "expected a list of one or more objects with id and kwargs" in refusal(value)


@pytest.mark.parametrize(
    ("name", "parameter", "wrong"),
    [
        (WORDS, "num_words", -1),
        (WORDS, "num_words", True),
        (WORDS, "num_words", 4.0),
        (WORDS, "num_words", "4"),
        (WORDS, "relation", "At least"),
        ("keywords:existence", "keywords", []),
        ("keywords:existence", "keywords", ["cat", " "]),
        ("keywords:existence", "keywords", "cat"),
        ("keywords:frequency", "keyword", ""),
        ("keywords:letter_frequency", "letter", "ab"),
        ("keywords:letter_frequency", "letter", " "),
        ("language:response_language", "language", "German"),
        ("length_constraints:nth_paragraph_first_word", "nth_paragraph", 0),
        ("length_constraints:nth_paragraph_first_word", "nth_paragraph", 4),
        ("length_constraints:nth_paragraph_first_word", "first_word", "two words"),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused(name: str, parameter: str, wrong: object) -> None:
    right = {
        "num_words": 4,
        "relation": "at least",
        "keywords": ["cat"],
        "keyword": "cat",
        "frequency": 1,
        "letter": "a",
        "let_frequency": 1,
        "let_relation": "less than",
        "language": "de",
        "num_paragraphs": 3,
        "nth_paragraph": 3,
        "first_word": "word",
    }
    kwargs: dict[str, object] = {one: right[one] for one in parameters_of(name)}
    assert len(parse_instructions([{"id": name, "kwargs": kwargs}], "problem 17")) == 1
    message = refusal([{"id": name, "kwargs": kwargs | {parameter: wrong}}])
    assert f"{name}: {parameter}: got {wrong!r}, expected " in message


def test_every_parameter_of_every_check_has_a_kind() -> None:
    needed = {parameter for name in CHECKS for parameter in parameters_of(name)}
    assert needed == set(parsing._KINDS)
    assert parameters_of("keywords:letter_frequency") == ("letter", "let_frequency", "let_relation")


@pytest.mark.parametrize(
    ("answered", "text"),
    [
        ("\n<answer>\nFour cats\n</answer>\n", "Four cats"),
        ("Four cats", "Four cats"),
        ("<answer>cut off", "cut off"),
        ("<answer></answer>", ""),
        ("Write <answer> and </answer> around it.", "Write <answer> and </answer> around it."),
    ],
)
def test_the_tags_around_an_answer_are_not_part_of_it(answered: str, text: str) -> None:
    assert without_answer_tags(answered) == text
