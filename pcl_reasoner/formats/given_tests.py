r"""Tests in the two forms that most sources give them in -> tests of one form.

    {"inputs": ["3\n", "4\n"], "outputs": ["6\n", "8\n"]}            APPS, TACO, AM, PRIME
    {"fn_name": "add", "inputs": [[1, 2]], "outputs": [[3]]}         their functional problems
    {"fn_name": "f", "inputs": [[{"1": 5}]], "outputs": [[5]]}       -> assert f({1: 5}) == 5
    [{"input": "3\n", "output": "6\n", "type": "stdin_stdout"}]      verifiable-coding-problems
    [{"input": "1\n2", "output": "3", "testtype": "functional"}]     LiveCodeBench, DeepCoder

A dictionary in JSON has texts as keys. As in the programs that grade these tests, whole numbers as
keys of a dictionary that is the only argument or the result become integers. JSON cannot have them,
so such tests become asserts.

Sources: the programs that read them: rllm's prepare_deepcoder_data, verl's reward_score/prime_code,
APPS's testing_util and LiveCodeBench's lcb_runner. These turn the keys of a first argument into
integers even if there are others, and then leave out the others; we differ.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pcl_reasoner.formats.checks import (
    MAX_DEPTH,
    Tests,
    assert_cases,
    check_depth,
    check_name,
    check_size,
    functional_cases,
    stdin_cases,
)
from pcl_reasoner.formats.records import Malformed, ReadLimits, Reason, parse_json

LITERAL_BYTES = 1 << 24
"""Largest literal of Python. Its syntax tree can be a hundred times as large as its text."""
_FORMS = {
    "stdin": "stdin",
    "stdin_stdout": "stdin",
    "functional": "functional",
    "function_call": "functional",
}
"""A source's type of test -> the format of our tests."""
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")
"""The digits of a 64-bit number; no number has two forms."""


def parsed(value: Any, limits: ReadLimits, literal: bool = False) -> Any:
    """Return tests, parsed from JSON if they are a text; None for null and blank texts.

    Args:
        value: The tests, or their text.
        limits: Their largest size; a larger text is not parsed.
        literal: True: a text that is not JSON may also be a literal of Python.

    Raises:
        Malformed: The text is too large or too deep, or is neither.
    """
    if not isinstance(value, str):
        return value
    found = _parsed_text(value, limits, literal)
    check_depth([found], 2 * MAX_DEPTH)  # its arguments and results are inside
    return found


def _parsed_text(value: str, limits: ReadLimits, literal: bool) -> Any:
    check_size(value, limits)
    if not value.strip():
        return None
    try:
        return parse_json(value, Reason.MALFORMED_TESTS)
    except Malformed:
        if not literal:
            raise
    check_size(value, replace(limits, max_bytes=min(LITERAL_BYTES, limits.max_bytes)))
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError) as error:
        detail = "neither JSON nor a literal of Python"
        raise Malformed(Reason.MALFORMED_TESTS, detail) from error


def problem_tests(given: Any, entry: str = "") -> Tests:
    """Return the tests of a problem.

    Args:
        given: Parsed tests in one of the forms that the module's docstring shows.
        entry: Name of the function, if the source gives it beside the tests.

    Raises:
        Malformed: There are no tests, or they have another form or several types.
    """
    if not given:
        raise Malformed(Reason.NO_TESTS)
    if isinstance(given, dict):
        if "inputs" in given or "outputs" in given:
            return _paired(given, entry)
        given = [given]
    if not isinstance(given, list) or not all(isinstance(case, dict) for case in given):
        raise Malformed(Reason.MALFORMED_TESTS, "expected inputs and outputs, or a list of tests")
    return _typed(given, entry)


def _paired(given: dict[str, Any], entry: str) -> Tests:
    name = given.get("fn_name") or entry
    inputs, outputs = given.get("inputs"), given.get("outputs")
    if name:
        return _calls(str(name), inputs, outputs)
    return Tests("stdin", stdin_cases(inputs, outputs))


def _calls(name: str, inputs: Any, outputs: Any) -> Tests:
    """Return tests that call a function; the module's docstring says when they are asserts."""
    cases = functional_cases(inputs, outputs)
    singles = [case["args"][0] if len(case["args"]) == 1 else None for case in cases]
    given, expected = _integer_keys(singles), _integer_keys([case["out"] for case in cases])
    if given is None and expected is None:
        return Tests("functional", cases, entry=name)
    check_name(name)
    statements = []
    for number, case in enumerate(cases):
        args = case["args"]
        if given is not None and len(args) == 1:
            args = [given[number]]
        out = case["out"] if expected is None else expected[number]
        statements.append(f"assert {name}({', '.join(map(repr, args))}) == {out!r}")
    return Tests("assert", assert_cases(statements))


def _integer_keys(values: Sequence[Any]) -> list[Any] | None:
    """Return values with integers as keys; None if a key of a dictionary is no whole number."""
    keys = [str(key) for value in values if isinstance(value, dict) for key in value]
    if not keys or not all(map(_INTEGER.fullmatch, keys)):
        return None
    return [
        {int(key): inner for key, inner in value.items()} if isinstance(value, dict) else value
        for value in values
    ]


def _typed(given: list[dict[str, Any]], entry: str) -> Tests:
    lacking = [case for case in given if case.get("input") is None or case.get("output") is None]
    if lacking:
        detail = f"{len(lacking)} of {len(given)} tests lack input or output"
        raise Malformed(Reason.MALFORMED_TESTS, detail)
    names = [_name(case) or entry for case in given]
    forms = {_form(case, name) for case, name in zip(given, names, strict=True)}
    if len(forms) > 1:
        raise Malformed(Reason.MIXED_TESTS, f"types {', '.join(sorted(forms))} in one problem")
    inputs, outputs = [case["input"] for case in given], [case["output"] for case in given]
    if forms == {"stdin"}:
        return Tests("stdin", stdin_cases(inputs, outputs))
    if len(set(names)) > 1:
        raise Malformed(Reason.MIXED_TESTS, f"{len(set(names))} functions in one problem")
    return _calls(names[0], inputs, outputs)


def _name(case: dict[str, Any]) -> str:
    """Return the name of the function that a test calls, or ""."""
    metadata = case.get("metadata")
    inner = metadata.get("func_name") if isinstance(metadata, dict) else None
    return str(case.get("fn_name") or inner or "")


def _form(case: dict[str, Any], name: str) -> str:
    kind = case.get("testtype") or case.get("type")
    if kind is None:
        return "functional" if name else "stdin"
    form = _FORMS.get(kind) if isinstance(kind, str) else None
    if form is None:
        expected = ", ".join(_FORMS)
        raise Malformed(Reason.MALFORMED_TESTS, f"type of test {kind!r}, expected {expected}")
    return form
