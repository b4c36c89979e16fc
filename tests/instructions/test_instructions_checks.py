"""The 25 checks: a text that follows the instruction, and one that just does not."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

import pytest

from pcl_reasoner.instructions import checks, languages, words
from pcl_reasoner.instructions.checks import CHECKS
from pcl_reasoner.instructions.parsing import Instruction, Value, holds

AT_LEAST, LESS = "at least", "less than"

CASES: list[tuple[str, dict[str, Value], str, str]] = [
    # (id, parameters, holds, just fails)
    ("keywords:existence", {"keywords": ["Owl", "cat"]}, "CATS and owls", "cats and dogs"),
    ("keywords:existence", {"keywords": ["élan"]}, "Quel ÉLAN!", "Quel elan!"),
    ("keywords:existence", {"keywords": ["猫"]}, "我的猫很小。", "我的狗很小。"),
    ("keywords:existence", {"keywords": ["c.t"]}, "a c.t file", "a cat file"),
    (
        "keywords:frequency",
        {"keyword": "cat", "frequency": 3, "relation": AT_LEAST},
        "Cat, cats, CATALOGUE",
        "Cat, cats, dogs",
    ),
    (
        "keywords:frequency",
        {"keyword": "cat", "frequency": 3, "relation": LESS},
        "Cat, cats, dogs",
        "Cat, cats, CATALOGUE",
    ),
    (
        "keywords:forbidden_words",
        {"forbidden_words": ["cat", "dog"]},
        "A bobcat, cats, dogma.",
        "Dogs? A CAT.",
    ),
    ("keywords:forbidden_words", {"forbidden_words": ["C++"]}, "I like C+.", "I like C++11."),
    ("keywords:forbidden_words", {"forbidden_words": ["猫"]}, "我的狗很小。", "我的猫很小。"),
    ("keywords:forbidden_words", {"forbidden_words": ["a.c"]}, "abc", "(a.c)"),
    (
        "keywords:letter_frequency",
        {"letter": "E", "let_frequency": 4, "let_relation": AT_LEAST},
        "Eleven be",
        "Eleven",
    ),
    (
        "keywords:letter_frequency",
        {"letter": "q", "let_frequency": 1, "let_relation": LESS},
        "Never",
        "Quite",
    ),
    (
        "keywords:letter_frequency",
        {"letter": "#", "let_frequency": 2, "let_relation": AT_LEAST},
        "#a #b",
        "#a b",
    ),
    (
        "language:response_language",
        {"language": "de"},
        "Das ist der Hund und das ist die Katze.",
        "This is the dog and that is the cat.",
    ),
    ("language:response_language", {"language": "zh"}, "这是一只猫。", "これは猫です。"),
    # Names and greetings without a frequent word are no answer in every language.
    ("language:response_language", {"language": "vi"}, "42!", "Alma, Bruno!"),
    ("language:response_language", {"language": "fr"}, "Bonjour à Alma!", "Guten Morgen!"),
    (
        "length_constraints:number_sentences",
        {"num_sentences": 3, "relation": AT_LEAST},
        "One. Two! Three",
        "One. Two, three!",
    ),
    (
        "length_constraints:number_sentences",
        {"num_sentences": 3, "relation": LESS},
        "Dr. A. Lee has 3.5 cats. Really?",
        "Lee has cats. Really? Yes.",
    ),
    (
        "length_constraints:number_paragraphs",
        {"num_paragraphs": 2},
        "***\nOne.\n***\nTwo.\n***",
        "One.\n***\nTwo.\n***\nThree.",
    ),
    (
        "length_constraints:number_paragraphs",
        {"num_paragraphs": 2},
        "One.\n* * *\nTwo.",
        "One.\n***\n\n***\nTwo.",  # the one in between is empty
    ),
    (
        "length_constraints:number_paragraphs",
        {"num_paragraphs": 1},
        "One.\n\nTwo.",
        "One. *** Two.",
    ),
    (
        "length_constraints:number_words",
        {"num_words": 4, "relation": AT_LEAST},
        "Cats, dogs and owls.",
        "Cats, dogs, owls.",
    ),
    (
        "length_constraints:number_words",
        {"num_words": 4, "relation": LESS},
        "Cats, dogs, owls.",
        "Cats don't run.",  # don and t are two words
    ),
    (
        "length_constraints:number_words",
        {"num_words": 4, "relation": AT_LEAST},
        "三只小猫。",  # four Han characters
        "小猫。",
    ),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "then"},
        'First this.\n\n"Then, that."',
        "First this.\n\nSo then that.",
    ),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "then"},
        "First this.\n\n\n\nThen that.",  # the empty paragraph is not numbered
        "First this.\n\nThen that.\n\nAnd that.",
    ),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 1, "nth_paragraph": 1, "first_word": "Don't"},
        "don't panic",
        "do not panic",
    ),
    (
        "detectable_content:number_placeholders",
        {"num_placeholders": 2},
        "Dear [name], [your address]",
        "Dear [name], [your\naddress]",
    ),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Bye. p. s. Hi", "Bye. PS Hi"),
    (
        "detectable_content:postscript",
        {"postscript_marker": "P.P.S"},
        "P.S. Hi\nP.P.S Bye",
        "P.S. Hi",
    ),
    (
        "detectable_content:postscript",
        {"postscript_marker": "Addendum:"},
        "addendum: x",
        "addendum",
    ),
    (
        "detectable_format:number_bullet_lists",
        {"num_bullets": 2},
        "* a\n  - b\n**c**\n1. d",
        "* a\n  - b\n---",
    ),
    (
        "detectable_format:constrained_response",
        {},
        "Well. My answer is maybe.",
        "My answer is maybe",
    ),
    (
        "detectable_format:number_highlighted_sections",
        {"num_highlights": 2},
        "*one* and **two**",
        "*one* and ** ** and *two\nthree*",
    ),
    (
        "detectable_format:multiple_sections",
        {"section_spliter": "Section", "num_sections": 2},
        "Section 1\na\nSection2\nb",
        "Section 1\na\nSECTION 2\nb, see Section B",
    ),
    ("detectable_format:json_format", {}, '```json\n{"a": [1, "é"]}\n```', "{'a': 1}"),
    ("detectable_format:json_format", {}, ' {"a": 1} ', '{"a": 1} as asked'),
    ("detectable_format:title", {}, "a\n<<Ode to 猫>>\nb", "<< >>\n<<Ode\nto>>"),
    ("combination:two_responses", {}, "yes\n******\nno\n******", "yes\n******\n yes"),
    ("combination:two_responses", {}, "yes******no", "yes\n******\n******\nno"),
    ("combination:two_responses", {}, "yes******no", "yes******no******maybe"),
    (
        "combination:repeat_prompt",
        {"prompt_to_repeat": " Name a bird. "},
        "\nname a BIRD. Owl.",
        "Sure. Name a bird. Owl.",
    ),
    ("startend:end_checker", {"end_phrase": "Good bye."}, '"So. good bye."\n', "Good bye. So"),
    ("startend:quotation", {}, ' "Yes" ', "“Yes”"),
    ("startend:quotation", {}, '""', '"'),
    (
        "change_case:capital_word_frequency",
        {"capital_frequency": 3, "capital_relation": AT_LEAST},
        "I have COVID-19, **NASA's** said.",
        "I have COVID-19, Nasa said.",
    ),
    (
        "change_case:capital_word_frequency",
        {"capital_frequency": 1, "capital_relation": LESS},
        "No capitals Here",
        "One IN here",
    ),
    (
        "change_case:capital_word_frequency",
        {"capital_frequency": 2, "capital_relation": LESS},
        "An X-RAY",
        "An X RAY",
    ),
    (
        # NLTK splits at dots and at double dashes, too: STOP NOW END HERE.
        "change_case:capital_word_frequency",
        {"capital_frequency": 4, "capital_relation": AT_LEAST},
        "STOP...NOW is the END--HERE.",
        "STOP.NOW is the END-HERE.",
    ),
    ("change_case:english_capital", {}, "THE CAT IS 3.", "THE CAT Is 3."),
    ("change_case:english_capital", {}, "YES", "DAS IST DIE KATZE UND DER HUND."),
    ("change_case:english_capital", {}, "CATS, DOGS", "КОШКА"),
    ("change_case:english_lowercase", {}, "the cat is 3.", "the cat is A."),
    ("change_case:english_lowercase", {}, "yes", "das ist die katze und der hund."),
    ("punctuation:no_comma", {}, "One; two.", "One, two."),
    ("punctuation:no_comma", {}, "一；二。", "一，二。"),
]


@pytest.mark.parametrize(("instruction", "kwargs", "good", "bad"), CASES)
def test_a_text_follows_and_another_just_does_not(
    instruction: str, kwargs: dict[str, Value], good: str, bad: str
) -> None:
    assert holds(Instruction(instruction, kwargs), good) is True
    assert holds(Instruction(instruction, kwargs), bad) is False


def test_there_are_25_checks_and_each_has_a_case() -> None:
    assert len(CHECKS) == 25
    assert {case[0] for case in CASES} == set(CHECKS)


@pytest.mark.parametrize("text", ["", " \n\t"])
@pytest.mark.parametrize(("instruction", "kwargs"), [case[:2] for case in CASES])
def test_an_empty_text_follows_no_instruction(
    instruction: str, kwargs: dict[str, Value], text: str
) -> None:
    assert holds(Instruction(instruction, kwargs), text) is False


@pytest.mark.parametrize(("number", "at_least", "less"), [(3, True, False), (2, False, True)])
def test_at_least_has_its_bound_and_less_than_has_not(
    number: int, at_least: bool, less: bool
) -> None:
    assert checks.is_related(number, "at least", 3) is at_least
    assert checks.is_related(number, "less than", 3) is less


def test_json_that_is_nested_too_deep_is_no_json() -> None:
    assert holds(Instruction("detectable_format:json_format", {}), "[" * 100_000) is False


def test_highlights_are_counted_as_ifeval_counts_them() -> None:
    twice = Instruction("detectable_format:number_highlighted_sections", {"num_highlights": 2})
    thrice = Instruction("detectable_format:number_highlighted_sections", {"num_highlights": 3})
    assert holds(twice, "***both***") and not holds(thrice, "***both***")
    # The pairs of asterisks: "* an item *", "*bold*", and "**bold**".
    assert holds(thrice, "* an item **bold**")


def patterns(*modules: ModuleType) -> Iterator[re.Pattern[str]]:
    for module in modules:
        for value in vars(module).values():
            if isinstance(value, re.Pattern):
                yield value


def repeats_in(parsed: Any, inside: bool = False) -> bool:
    """Whether a repetition without an upper bound has another one inside."""
    for name, arguments in parsed:
        unbounded = str(name) == "MAX_REPEAT" and str(arguments[1]) == "MAXREPEAT"
        if unbounded and inside:
            return True
        stack = [arguments]
        while stack:
            part = stack.pop()
            if hasattr(part, "getwidth"):
                if repeats_in(part, inside or unbounded):
                    return True
            elif isinstance(part, tuple | list):
                stack.extend(part)
    return False


def test_no_pattern_repeats_a_repetition() -> None:
    found = list(patterns(checks, languages, words))
    assert len(found) >= 10
    parse = re._parser.parse  # type: ignore[attr-defined]
    assert [one.pattern for one in found if repeats_in(parse(one.pattern))] == []
    assert repeats_in(parse(r"(?:x|(?:a+b)*)c"))


@pytest.mark.parametrize("unit", ["[", "<<", "*", "\n", ". ", "e.g. ", "a.", '"', "{", "a "])
def test_a_long_text_of_one_sign_is_read_in_one_pass(unit: str) -> None:
    # A check that reads the rest of the text again at each sign would take minutes here.
    text = unit * (300_000 // len(unit)) + "!"
    kwargs: Mapping[str, Mapping[str, Value]] = {case[0]: case[1] for case in CASES}
    verdicts = {name: holds(Instruction(name, kwargs[name]), text) for name in CHECKS}
    assert verdicts["punctuation:no_comma"] is True
    assert verdicts["detectable_format:title"] is False
    assert verdicts["detectable_content:number_placeholders"] is False
