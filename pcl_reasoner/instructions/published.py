"""Reads the instructions of published records: IFEval's, and those of Tülu's RLVR-IFeval.

IFEval (google/IFEval). Every object of kwargs may have all parameters of all checks, most null:

    {"key": 7, "prompt": "Name three birds …",
     "instruction_id_list": ["length_constraints:number_words", "punctuation:no_comma"],
     "kwargs": [{"relation": "less than", "num_words": 40, "letter": null, …}, {…}]}

Tülu (allenai/RLVR-IFeval). One demand per record; ground_truth is a JSON string:

    {"messages": [{"role": "user", "content": "Name three birds … Answer with around 40 words"}],
     "ground_truth": "{\\"func_name\\": \\"validate_word_constraint\\", \\"N\\": 40,
                       \\"quantifier\\": \\"around\\", \\"letter\\": null, …}",
     "dataset": "ifeval", "constraint_type": "Number Words",
     "constraint": "Answer with at least / around / at most {N} words"}
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Mapping

from pcl_reasoner.core.files import nearest
from pcl_reasoner.instructions.checks import CHECKS
from pcl_reasoner.instructions.languages import LANGUAGES
from pcl_reasoner.instructions.parsing import Instruction, checked, joined, parameters_of

_FUNCTIONS: dict[str, tuple[str, dict[str, str]]] = {
    "verify_keywords": ("keywords:existence", {"keyword_list": "keywords"}),
    "verify_keyword_frequency": ("keywords:frequency", {"word": "keyword", "N": "frequency"}),
    "validate_forbidden_words": (
        "keywords:forbidden_words",
        {"forbidden_words": "forbidden_words"},
    ),
    "verify_letter_frequency": (
        "keywords:letter_frequency",
        {"letter": "letter", "N": "let_frequency"},
    ),
    "validate_response_language": ("language:response_language", {"language": "language"}),
    "verify_paragraph_count": (
        "length_constraints:number_paragraphs",
        {"N": "num_paragraphs"},
    ),
    "validate_word_constraint": (
        "length_constraints:number_words",
        {"N": "num_words", "quantifier": "relation"},
    ),
    "verify_sentence_constraint": (
        "length_constraints:number_sentences",
        {"N": "num_sentences", "quantifier": "relation"},
    ),
    "validate_paragraphs": (
        "length_constraints:nth_paragraph_first_word",
        {"N": "num_paragraphs", "i": "nth_paragraph", "first_word": "first_word"},
    ),
    "verify_postscript": (
        "detectable_content:postscript",
        {"postscript_marker": "postscript_marker"},
    ),
    "validate_placeholders": (
        "detectable_content:number_placeholders",
        {"N": "num_placeholders"},
    ),
    "verify_bullet_points": ("detectable_format:number_bullet_lists", {"N": "num_bullets"}),
    "validate_title": ("detectable_format:title", {}),
    "validate_highlighted_sections": (
        "detectable_format:number_highlighted_sections",
        {"N": "num_highlights"},
    ),
    "validate_sections": (
        "detectable_format:multiple_sections",
        {"N": "num_sections", "section_splitter": "section_spliter"},
    ),
    "validate_json_format": ("detectable_format:json_format", {}),
    "validate_repeat_prompt": (
        "combination:repeat_prompt",
        {"original_prompt": "prompt_to_repeat"},
    ),
    "validate_two_responses": ("combination:two_responses", {}),
    "validate_uppercase": ("change_case:english_capital", {}),
    "validate_lowercase": ("change_case:english_lowercase", {}),
    "validate_frequency_capital_words": (
        "change_case:capital_word_frequency",
        {"N": "capital_frequency", "quantifier": "capital_relation"},
    ),
    "validate_end": ("startend:end_checker", {"end_phrase": "end_phrase"}),
    "validate_quotation": ("startend:quotation", {}),
    "validate_no_commas": ("punctuation:no_comma", {}),
}
"""Function of open-instruct's if_functions.py -> check that asks for the same, parameter names.

``validate_choice`` is absent: its options are free text, those of IFEval are fixed."""

_SLACK = {"length_constraints:number_sentences": 1, "change_case:capital_word_frequency": 0}
"""How far a count may be from a number N that Tülu calls ``around``; for others 10 % of N."""


class UnsupportedInstruction(ValueError):
    """A published instruction that is none of the 25 checks; the record itself may be sound."""


def instructions_of(record: Mapping[str, object]) -> list[Instruction]:
    """Read a record of IFEval or of RLVR-IFeval, whichever its columns are.

    Args:
        record: One row, as JSON or Parquet gives it.

    Raises:
        UnsupportedInstruction: As from_ifeval and from_tulu.
        ValueError: As from_ifeval and from_tulu; or the record has the columns of neither.
    """
    if "instruction_id_list" in record:
        return from_ifeval(record)
    if "ground_truth" in record:
        return from_tulu(record)
    raise ValueError(
        f"columns {', '.join(record) or 'none'}: expected instruction_id_list and kwargs (IFEval) "
        "or ground_truth (RLVR-IFeval)"
    )


def from_ifeval(record: Mapping[str, object]) -> list[Instruction]:
    """Read a record of IFEval, or of another data set with its columns and ids.

    Args:
        record: Has ``instruction_id_list`` and ``kwargs``, lists of equal length. An item of
            kwargs may be JSON, and null is an empty object. Parameters that are null are ignored.
            A whole number may be a float, as pandas writes a column with nulls.

    Raises:
        UnsupportedInstruction: An id is not one of the 25, or no check knows its language or
            counts its letters.
        ValueError: The lists are missing, empty or of different length, or a parameter is unknown,
            missing or wrong. Both messages have all mistakes.
    """
    ids, kwargs = record.get("instruction_id_list"), record.get("kwargs")
    if not isinstance(ids, list) or not isinstance(kwargs, list) or len(ids) != len(kwargs):
        raise ValueError(
            f"instruction_id_list and kwargs: got {reprlib.repr(ids)} and {reprlib.repr(kwargs)}, "
            "expected two lists of equal length"
        )
    if not ids:
        raise ValueError("instruction_id_list is empty: there is nothing to check")
    return _all_checked(list(zip(ids, map(_object, kwargs), strict=True)))


def _object(value: object) -> object:
    """Return an item of kwargs as an object, if it is one, JSON of one, or null."""
    try:
        parsed = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return value
    return {} if parsed is None else parsed


def from_tulu(record: Mapping[str, object]) -> list[Instruction]:
    """Read a record of Tülu's RLVR-IFeval.

    The demand of the prompt stays; how it is counted becomes IFEval's, e.g. sections need numbers
    and case does not matter for letters. Tülu's relations become bounds, two of them where needed:

    - ``at most`` N: less than N + 1.
    - ``around`` N: within 10 % of N, at least within 1; for sentences within 1; for words in
      capital letters exactly N.
    - a number of keywords or letters, without a relation: exactly N.

    ``original_prompt`` has the sentence that asks for the repetition, although the sentence says
    that it is not to be repeated; it is removed where the column ``constraint`` has it.

    Args:
        record: Has ``ground_truth``, a JSON string or its object: ``func_name`` and parameters; or
            a list of these.

    Raises:
        UnsupportedInstruction: The function is unknown, or no check asks for the same.
        ValueError: ``ground_truth`` is something else, or a parameter is unknown, missing or
            wrong.
    """
    told = record.get("ground_truth")
    pairs: list[tuple[object, object]] = []
    for one in told if isinstance(told, list) and told else [told]:
        pairs += _demand(_ground_truth(one), record.get("constraint"))
    return _all_checked(pairs)


def _demand(given: dict[str, object], sentence: object) -> list[tuple[object, object]]:
    """Return id and parameters of the checks for one of Tülu's functions.

    Args:
        given: ``func_name`` and its parameters.
        sentence: The sentence that asks for it, or None.

    Raises:
        UnsupportedInstruction: The function is unknown, or no check asks for the same.
        ValueError: A parameter is unknown.
    """
    function = given.pop("func_name", None)
    if function == "validate_choice":
        raise UnsupportedInstruction(
            "validate_choice: its options are free text; IFEval's constrained_response has three "
            "fixed answers, so there is no check for it"
        )
    if not isinstance(function, str) or function not in _FUNCTIONS:
        hint = nearest(str(function), _FUNCTIONS)
        raise UnsupportedInstruction(
            f"func_name {function!r} is not a function of RLVR-IFeval.{hint}"
        )
    instruction_id, names = _FUNCTIONS[function]
    if odd := [name for name in given if name not in names]:
        takes = ", ".join(names) or "none"
        raise ValueError(f"{function}: parameters {', '.join(odd)}: it takes {takes}")
    kwargs = {names[name]: _whole(value) for name, value in given.items()}
    prompt = kwargs.get("prompt_to_repeat")
    if isinstance(prompt, str) and isinstance(sentence, str) and sentence:
        kwargs["prompt_to_repeat"] = prompt.replace(sentence, "").strip()
    return [(instruction_id, bound) for bound in _bounds(instruction_id, kwargs)]


def _ground_truth(value: object) -> dict[str, object]:
    """The object of a ground truth without its nulls."""
    try:
        parsed = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict) or "func_name" not in parsed:
        raise ValueError(
            f"ground_truth: got {reprlib.repr(value)}, expected a JSON object with func_name and "
            "its parameters"
        )
    return {str(name): one for name, one in parsed.items() if one is not None}


def _bounds(instruction_id: str, kwargs: dict[str, object]) -> list[dict[str, object]]:
    """The parameters of one or two instructions that together ask for Tülu's relation."""
    parameters = parameters_of(instruction_id)
    relation = next((name for name in parameters if name.endswith("relation")), None)
    if relation is None:
        return [kwargs]
    counted = next(name for name in parameters if name.startswith("num_") or "frequency" in name)
    number = kwargs.get(counted)
    asked = "exactly" if instruction_id.startswith("keywords:") else kwargs.get(relation)
    if type(number) is not int or number < 0 or asked not in ("exactly", "around", "at most"):
        return [kwargs]
    slack = 0
    if asked == "around":
        slack = _SLACK.get(instruction_id, max(round(number * 0.1), 1))
    upper = kwargs | {relation: "less than", counted: number + slack + 1}
    if asked == "at most":
        return [upper]
    return [kwargs | {relation: "at least", counted: max(number - slack, 0)}, upper]


def _all_checked(pairs: list[tuple[object, object]]) -> list[Instruction]:
    instructions: list[Instruction] = []
    mistakes: list[str] = []
    for instruction_id, kwargs in pairs:
        if isinstance(kwargs, dict):
            kwargs = {name: _whole(value) for name, value in kwargs.items()}
        found = checked(instruction_id, kwargs)
        if isinstance(found, Instruction):
            instructions.append(found)
        else:
            mistakes += found
    if mistakes:
        unsupported = any(_is_unsupported(name, kwargs) for name, kwargs in pairs)
        raise (UnsupportedInstruction if unsupported else ValueError)(joined(mistakes))
    return instructions


def _is_unsupported(instruction_id: object, kwargs: object) -> bool:
    """Whether an instruction is sound and no check expresses it.

    Its id is another one, its language is one that languages.py does not know, e.g. nl, or its
    letter has several characters, e.g. th.
    """
    if not isinstance(instruction_id, str):
        return False
    given = kwargs if isinstance(kwargs, dict) else {}
    language, letter = given.get("language"), given.get("letter")
    return (
        instruction_id not in CHECKS
        or (isinstance(language, str) and language not in LANGUAGES)
        or (isinstance(letter, str) and len(letter) > 1)
    )


def _whole(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value
