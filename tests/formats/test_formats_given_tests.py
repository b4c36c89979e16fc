"""The two forms in which sources give tests, and everything between them that is refused."""

from __future__ import annotations

from typing import Any

import pytest

from pcl_reasoner.formats import given_tests
from pcl_reasoner.formats.given_tests import parsed, problem_tests
from pcl_reasoner.formats.records import Malformed, ReadLimits
from pcl_reasoner.sandbox.test_cases import literal_call


def case(given: Any, expected: Any, **others: Any) -> dict[str, Any]:
    return {"input": given, "output": expected, **others}


STDIN = [{"input": "3\n", "output": "6\n"}]
CALL = [{"args": [3], "out": 6}]


@pytest.mark.parametrize(
    ("given", "entry", "format", "name", "cases"),
    [
        ({"inputs": ["3\n"], "outputs": ["6\n"]}, "", "stdin", "", STDIN),
        ({"inputs": ["3\n"], "outputs": ["6\n"], "fn_name": None}, "", "stdin", "", STDIN),
        ({"inputs": [[3]], "outputs": [[6]], "fn_name": "f"}, "", "functional", "f", CALL),
        ({"inputs": ["3"], "outputs": ["6"]}, "f", "functional", "f", CALL),
        (case("3\n", "6\n"), "", "stdin", "", STDIN),
        ([case("3\n", "6\n")], "", "stdin", "", STDIN),
        ([case("3\n", "6\n", type="stdin_stdout", fn_name=None)], "", "stdin", "", STDIN),
        ([case("3\n", "6\n", testtype="stdin")], "f", "stdin", "", STDIN),
        ([case([3], [6], type="function_call", fn_name="f")], "", "functional", "f", CALL),
        ([case([3], [6], fn_name="f")], "", "functional", "f", CALL),
        ([case("3", "6", testtype="functional")], "f", "functional", "f", CALL),
        (
            [case("3", "6", testtype="functional", metadata={"func_name": "f"})],
            "",
            "functional",
            "f",
            CALL,
        ),
    ],
)
def test_forms(given: Any, entry: str, format: str, name: str, cases: list[Any]) -> None:
    found = problem_tests(given, entry)
    assert (found.format, found.entry, found.cases) == (format, name, cases)


@pytest.mark.parametrize(
    ("inputs", "outputs", "statements"),
    [
        ([[{"1": 5}], [{}]], [[5], [0]], ["assert f({1: 5}) == 5", "assert f({}) == 0"]),
        (['{"1": 5, "-2": "a"}'], ["true"], ["assert f({1: 5, -2: 'a'}) == True"]),
        ([["x"]], [{"0": [None]}], ["assert f('x') == {0: [None]}"]),
        ([[{"1": {"2": 3}}]], [[{"4": 1.5}]], ["assert f({1: {'2': 3}}) == {4: 1.5}"]),
    ],
)
def test_whole_numbers_as_keys_become_integers(
    inputs: Any, outputs: Any, statements: list[str]
) -> None:
    found = problem_tests({"fn_name": "f", "inputs": inputs, "outputs": outputs})
    assert (found.format, found.cases, found.entry) == ("assert", statements, "")
    pairs = zip(inputs, outputs, strict=True)
    listed = [case(*pair, type="function_call", fn_name="f") for pair in pairs]
    assert problem_tests(listed) == found
    calls = [literal_call(statement) for statement in statements]
    assert all(call is not None and call[0] == "f" for call in calls)


@pytest.mark.parametrize(
    "dictionaries",
    [[{"a": 1}], [{"1": 1}, {"a": 1}], [{"01": 1}], [{"1.0": 1}], [{"-0": 1}], [{}], [[{"1": 1}]]],
)
def test_other_keys_stay_texts(dictionaries: list[Any]) -> None:
    inputs = [[one] for one in dictionaries]
    given = {"fn_name": "f", "inputs": inputs, "outputs": [0] * len(inputs)}
    found = problem_tests(given)
    assert (found.format, found.entry) == ("functional", "f")
    assert [one["args"] for one in found.cases] == inputs
    # Of two arguments none is changed.
    two = problem_tests({"fn_name": "f", "inputs": [[{"1": 1}, 2]], "outputs": [0]})
    assert two.cases == [{"args": [{"1": 1}, 2], "out": 0}]


def test_the_name_of_a_function_in_an_assert() -> None:
    with pytest.raises(Malformed, match="malformed_tests"):
        problem_tests({"fn_name": "f(0) or g", "inputs": [[{"1": 5}]], "outputs": [[5]]})


@pytest.mark.parametrize(
    ("given", "reason", "detail"),
    [
        (None, "no_tests", ""),
        ([], "no_tests", ""),
        ({}, "no_tests", ""),
        ("", "no_tests", ""),
        ("text", "malformed_tests", "expected inputs and outputs, or a list of tests"),
        ([["3", "6"]], "malformed_tests", "expected inputs and outputs, or a list of tests"),
        ({"inputs": ["3"]}, "malformed_tests", "inputs and outputs must be two lists"),
        (
            {"inputs": ["3", "4"], "outputs": ["6"]},
            "malformed_tests",
            "2 inputs and 1 outputs, expected as many",
        ),
        ([{"input": "3"}], "malformed_tests", "1 of 1 tests lack input or output"),
        ([case("3", None)], "malformed_tests", "1 of 1 tests lack input or output"),
        (
            [case("3", "6", type="file")],
            "malformed_tests",
            "type of test 'file', expected stdin, stdin_stdout, functional, function_call",
        ),
        (
            [case("3", "6", type=["stdin"])],
            "malformed_tests",
            "type of test ['stdin'], expected stdin, stdin_stdout, functional, function_call",
        ),
        (
            [case("3", "6", testtype="stdin"), case("3", "6", testtype="functional")],
            "mixed_tests",
            "types functional, stdin in one problem",
        ),
        (
            [case("3", "6", fn_name="f"), case("3", "6", fn_name="g")],
            "mixed_tests",
            "2 functions in one problem",
        ),
    ],
)
def test_refusals(given: Any, reason: str, detail: str) -> None:
    with pytest.raises(Malformed) as caught:
        problem_tests(given)
    assert (str(caught.value), caught.value.detail) == (reason, detail)


def test_a_text_is_json_and_perhaps_a_literal() -> None:
    limits = ReadLimits()
    assert parsed('[{"a": null}]', limits) == [{"a": None}]
    assert parsed([1], limits) == [1]
    assert parsed(None, limits) is parsed(" ", limits) is None
    literal = "{'language': 'python', 'test_cases': [(1, None, True)]}"
    expected = {"language": "python", "test_cases": [(1, None, True)]}
    assert parsed(literal, limits, literal=True) == expected
    with pytest.raises(Malformed, match="malformed_tests"):
        parsed(literal, limits)


@pytest.mark.parametrize(
    "text", ["__import__('os').getcwd()", "[1", "x", "{[]: 1}", "[" * 5000, "1e999 + nan", "'\0'"]
)
def test_a_literal_is_never_run(text: str) -> None:
    with pytest.raises(Malformed, match="malformed_tests") as caught:
        parsed(text, ReadLimits(), literal=True)
    assert caught.value.detail == "neither JSON nor a literal of Python"


def test_a_large_text_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Malformed, match="tests_too_large"):
        parsed("[" + " " * 100 + "]", ReadLimits(max_bytes=100))
    monkeypatch.setattr(given_tests, "LITERAL_BYTES", 20)
    assert parsed("[" + " " * 100 + "]", ReadLimits(), literal=True) == []
    with pytest.raises(Malformed, match="tests_too_large"):
        parsed("['" + " " * 100 + "']", ReadLimits(), literal=True)


def test_a_number_of_too_many_digits() -> None:
    """A hexadecimal literal can have more digits than Python turns into a text."""
    given = parsed("[{'input': 0x" + "f" * 9000 + ", 'output': '1'}]", ReadLimits(), literal=True)
    with pytest.raises(Malformed, match="malformed_tests"):
        problem_tests(given)
