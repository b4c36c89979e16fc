"""Records with the columns of IFEval and of RLVR-IFeval; their contents are made up."""

from __future__ import annotations

import json
import re

import pytest

from pcl_reasoner.instructions.parsing import Instruction, all_of
from pcl_reasoner.instructions.published import (
    _FUNCTIONS,
    UnsupportedInstruction,
    instructions_of,
)

IFEVAL_PARAMETERS = (
    "num_highlights relation num_words num_placeholders prompt_to_repeat num_bullets "
    "section_spliter num_sections capital_relation capital_frequency keywords num_paragraphs "
    "language let_relation letter let_frequency end_phrase forbidden_words keyword frequency "
    "num_sentences postscript_marker first_word nth_paragraph"
)
TULU_PARAMETERS = (
    "N quantifier end_phrase keyword_list word forbidden_words letter i first_word "
    "postscript_marker options section_splitter original_prompt"
)
WORDS = "length_constraints:number_words"
COUNT = "whole number, 0 or more"


def ifeval(*pairs: tuple[str, dict[str, object]]) -> dict[str, object]:
    nulls: dict[str, object] = dict.fromkeys(IFEVAL_PARAMETERS.split())
    return {
        "key": 7,
        "prompt": "Name three birds.",
        "instruction_id_list": [name for name, _ in pairs],
        "kwargs": [nulls | given for _, given in pairs],
    }


def tulu(function: str, constraint: str = "", **given: object) -> dict[str, object]:
    nulls: dict[str, object] = dict.fromkeys(TULU_PARAMETERS.split())
    return {
        "messages": [{"role": "user", "content": "Name three birds."}],
        "ground_truth": json.dumps({"func_name": function} | nulls | given),
        "dataset": "ifeval",
        "constraint_type": "…",
        "constraint": constraint,
    }


def test_ifeval_with_all_its_nulls() -> None:
    record = ifeval(
        (WORDS, {"relation": "at least", "num_words": 3}),
        ("punctuation:no_comma", {}),
        ("keywords:existence", {"keywords": ["owl"]}),
    )
    read = instructions_of(record)
    assert read == [
        Instruction(WORDS, {"relation": "at least", "num_words": 3}),
        Instruction("punctuation:no_comma", {}),
        Instruction("keywords:existence", {"keywords": ["owl"]}),
    ]
    assert all_of(read, "an owl, a tit") == [True, False, True]


def test_ifeval_as_pandas_gives_it_and_without_kwargs() -> None:
    read = instructions_of(ifeval((WORDS, {"relation": "at least", "num_words": 3.0})))
    assert read[0].kwargs["num_words"] == 3 and isinstance(read[0].kwargs["num_words"], int)
    record = {"instruction_id_list": ["punctuation:no_comma"], "kwargs": [None]}
    assert instructions_of(record) == [Instruction("punctuation:no_comma", {})]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"prompt": "Name three birds."}, "columns prompt: expected instruction_id_list"),
        ({"instruction_id_list": ["punctuation:no_comma"]}, "two lists of equal length"),
        (ifeval() | {"kwargs": [{}]}, "two lists of equal length"),
        (ifeval(), "instruction_id_list is empty"),
        (ifeval(("count:words", {})), "id 'count:words' is unknown."),
        (
            ifeval(("detectable_format:quotation", {}), (WORDS, {"num_words": 2.5})),
            "3 mistakes:\n  - id 'detectable_format:quotation' is unknown.",
        ),
        (
            ifeval((WORDS, {"num_words": 2.5, "relation": "at least"})),
            f"got 2.5, expected a {COUNT}",
        ),
        (ifeval(("punctuation:no_comma", {"letter": "a"})), "parameter 'letter' is unknown"),
        (
            {"instruction_id_list": ["punctuation:no_comma"], "kwargs": ["[1]"]},
            "punctuation:no_comma: kwargs: got [1], expected an object.",
        ),
    ],
)
def test_ifeval_refused(record: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        instructions_of(record)


def test_what_no_check_asks_for_is_told_from_what_is_malformed() -> None:
    for unsupported in (
        ifeval(("count:words", {})),
        ifeval(("language:response_language", {"language": "nl"})),
        tulu("validate_choice", options="owl/tit"),
        tulu("validate_response_language", language="nl"),
        tulu("verify_letter_frequency", letter="th", N=2),
    ):
        with pytest.raises(UnsupportedInstruction):
            instructions_of(unsupported)
    for malformed in (
        ifeval((WORDS, {})),
        tulu("verify_bullet_points"),
        tulu("validate_response_language", language=7),
        tulu("verify_letter_frequency", letter="", N=2),
    ):
        with pytest.raises(ValueError, match="missing|expected one") as error:
            instructions_of(malformed)
        assert not isinstance(error.value, UnsupportedInstruction)


def bounds(name: str, number: str, relation: str, *pairs: tuple[str, int]) -> list[Instruction]:
    return [Instruction(name, {number: bound, relation: word}) for word, bound in pairs]


@pytest.mark.parametrize(
    ("quantifier", "n", "expected"),
    [
        ("at least", 40, [("at least", 40)]),
        ("at most", 40, [("less than", 41)]),
        ("around", 40, [("at least", 36), ("less than", 45)]),  # 10 % of 40 is 4
        ("around", 4, [("at least", 3), ("less than", 6)]),  # at least 1
        ("around", 0, [("at least", 0), ("less than", 2)]),
    ],
)
def test_tulu_words(quantifier: str, n: int, expected: list[tuple[str, int]]) -> None:
    read = instructions_of(tulu("validate_word_constraint", N=n, quantifier=quantifier))
    assert read == bounds(WORDS, "num_words", "relation", *expected)


def test_tulu_around_means_one_for_sentences_and_none_for_capitals() -> None:
    read = instructions_of(tulu("verify_sentence_constraint", N=30, quantifier="around"))
    name = "length_constraints:number_sentences"
    assert read == bounds(name, "num_sentences", "relation", ("at least", 29), ("less than", 32))
    read = instructions_of(tulu("validate_frequency_capital_words", N=30, quantifier="around"))
    assert read == bounds(
        "change_case:capital_word_frequency",
        "capital_frequency",
        "capital_relation",
        ("at least", 30),
        ("less than", 31),
    )
    assert all_of(read, "CAT " * 30) == [True, True]
    assert all_of(read, "CAT " * 29) == [False, True] and all_of(read, "CAT " * 31) == [True, False]


def test_tulu_counts_keywords_and_letters_exactly() -> None:
    read = instructions_of(tulu("verify_keyword_frequency", word="owl", N=2))
    assert [one.kwargs for one in read] == [
        {"keyword": "owl", "frequency": 2, "relation": "at least"},
        {"keyword": "owl", "frequency": 3, "relation": "less than"},
    ]
    assert all_of(read, "Owl, owl") == [True, True]
    assert all_of(read, "Owl") == [False, True] and all_of(read, "owl " * 3) == [True, False]
    read = instructions_of(tulu("verify_letter_frequency", letter="q", N=0))
    assert [one.kwargs["let_frequency"] for one in read] == [0, 1]


def test_tulu_asks_for_a_divider_with_spaces() -> None:
    read = instructions_of(tulu("verify_paragraph_count", N=2))
    assert read == [Instruction("length_constraints:number_paragraphs", {"num_paragraphs": 2})]
    assert all_of(read, "One.\n* * *\nTwo.") == [True] and all_of(read, "One.\n\nTwo.") == [False]


def test_tulu_does_not_ask_to_repeat_the_sentence_that_asks() -> None:
    sentence = "First, repeat the request (not this sentence)"
    prompt = f"{sentence} Name a bird."
    read = instructions_of(tulu("validate_repeat_prompt", sentence, original_prompt=prompt))
    assert read == [Instruction("combination:repeat_prompt", {"prompt_to_repeat": "Name a bird."})]
    read = instructions_of(tulu("validate_repeat_prompt", original_prompt=prompt))
    assert read[0].kwargs["prompt_to_repeat"] == prompt


def test_every_function_of_tulu_becomes_an_instruction() -> None:
    given: dict[str, object] = {
        "N": 3,
        "quantifier": "at least",
        "end_phrase": "Bye.",
        "keyword_list": ["owl"],
        "word": "owl",
        "forbidden_words": ["cat"],
        "letter": "q",
        "i": 2,
        "first_word": "Owls",
        "postscript_marker": "Addendum:",
        "section_splitter": "Chapter:",
        "original_prompt": "Name a bird.",
        "language": "de",
    }
    found = set()
    for function, (name, names) in _FUNCTIONS.items():
        read = instructions_of(tulu(function, **{one: given[one] for one in names}))
        assert {one.id for one in read} == {name}
        for theirs, ours in names.items():
            assert read[0].kwargs[ours] == given[theirs]
        found.add(name)
    assert len(_FUNCTIONS) == len(found) == 24


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (tulu("validate_choice", options="owl/tit"), "validate_choice: its options are free text"),
        (tulu("validate_titel"), "Did you mean 'validate_title'?"),
        (tulu("validate_title", N=3), "validate_title: parameters N: it takes none"),
        (tulu("validate_word_constraint", N=3), "parameter 'relation' is missing"),
        (tulu("validate_word_constraint", N=3, quantifier="over"), "relation: got 'over'"),
        (tulu("validate_word_constraint", N=-1, quantifier="at most"), f"expected a {COUNT}"),
        (tulu("verify_bullet_points"), "parameter 'num_bullets' is missing"),
        ({"ground_truth": "8"}, "ground_truth: got '8', expected a JSON object with func_name"),
        ({"ground_truth": "{"}, "ground_truth: got '{', expected a JSON object"),
        ({"ground_truth": None}, "ground_truth: got None"),
        ({"ground_truth": '[{"instruction_id": [], "kwargs": []}]'}, "expected a JSON object"),
    ],
)
def test_tulu_refused(record: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        instructions_of(record)
