"""The column ``checks`` by hand: pairs, arguments, statements, sizes, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pcl_reasoner.formats import checks
from pcl_reasoner.formats.checks import (
    Tests,
    assert_cases,
    check_size,
    code_checks,
    functional_cases,
    instruction_checks,
    language_of,
    pytest_cases,
    stdin_cases,
)
from pcl_reasoner.formats.records import Malformed, ReadLimits

ALL = ReadLimits(max_tests=None)


def refusal(function: Any, *args: Any) -> tuple[str, str]:
    with pytest.raises(Malformed) as caught:
        function(*args)
    return str(caught.value), caught.value.detail


def test_the_json_of_all_keys() -> None:
    cases = stdin_cases(["3\n", "4\n"], ["6\n", "8\n"])
    tests = Tests("stdin", cases, "not used", "cpp", "print(1)", 2.5, 256)
    assert json.loads(code_checks(tests, ALL, "int main() {}")) == {
        "tests": {
            "language": "cpp",
            "format": "stdin",
            "cases": [{"input": "3\n", "output": "6\n"}, {"input": "4\n", "output": "8\n"}],
            "checker": "print(1)",
            "seconds": 2.5,
            "megabytes": 256,
        },
        "reference": "int main() {}",
    }


def test_what_is_not_given_is_left_out() -> None:
    tests = Tests("functional", functional_cases(["3"], ["6"]), "double")
    assert json.loads(code_checks(tests, ALL)) == {
        "tests": {
            "language": "python",
            "format": "functional",
            "entry": "double",
            "cases": [{"args": [3], "out": 6}],
        }
    }


@pytest.mark.parametrize(("max_tests", "kept"), [(None, 12), (10, 10), (1, 1), (99, 12)])
def test_the_first_tests_are_kept(max_tests: int | None, kept: int) -> None:
    cases = stdin_cases([str(i) for i in range(12)], ["x"] * 12)
    found = json.loads(code_checks(Tests("stdin", cases), ReadLimits(max_tests)))["tests"]["cases"]
    assert [case["input"] for case in found] == [str(i) for i in range(kept)]


def test_the_order_of_a_dictionarys_keys_is_kept() -> None:
    tests = Tests("functional", functional_cases([[{"b": 1, "a": 2}]], ["0"]), "f")
    assert '{"b": 1, "a": 2}' in code_checks(tests, ALL)


def test_a_text_of_lines_as_apps_has_it() -> None:
    found = stdin_cases([["2", "3 4"], 5, [["a", "b"], "c"]], [["7"], "5", 1.5])
    assert found == [
        {"input": "2\n3 4", "output": "7"},
        {"input": "5", "output": "5"},
        {"input": "a\nb\nc", "output": "1.5"},
    ]


@pytest.mark.parametrize(
    ("given", "expected", "args", "out"),
    [
        ("3", "6", [3], 6),  # LiveCodeBench: a JSON value per line
        ('[1, 2]\n"a b"\n', "[3]", [[1, 2], "a b"], [3]),  # a JSON text is not unwrapped
        ("", "null", [], None),
        ([[1, 2], "x"], [[3]], [[1, 2], "x"], [3]),  # APPS: values, the result in a list of one
        ([5], [7], [5], 7),
        ([5], [7, 8], [5], [7, 8]),
        ([5], ["text"], [5], "text"),
        ([], 4, [], 4),
        (["é\n"], ["\0"], ["é\n"], "\0"),
    ],
)
def test_the_call_of_a_function(given: Any, expected: Any, args: list[Any], out: Any) -> None:
    assert functional_cases([given], [expected]) == [{"args": args, "out": out}]


@pytest.mark.parametrize(
    ("outputs", "results"),
    [
        ([[3], ["a"], [[1, 2]]], [3, "a", [1, 2]]),  # all in a list of one
        ([[1, 2], [2]], [[1, 2], [2]]),  # the function returns lists, one of them has one item
        ([[], [2]], [[], [2]]),
        ([[2], 2], [[2], 2]),
        ([[2], "[3]"], [[2], [3]]),
        (["bab", '"bab"', "7", "007", "b [1]"], ["bab", "bab", 7, "007", "b [1]"]),
    ],
)
def test_results_are_unwrapped_if_all_are_lists_of_one(
    outputs: list[Any], results: list[Any]
) -> None:
    found = functional_cases([[0]] * len(outputs), outputs)
    assert [case["out"] for case in found] == results


@pytest.mark.parametrize(
    "text", ["NaN", "-Infinity", "1e999", "True", "None", "(1, 2)", "'b'", "[1", '{"a": 1', '"b']
)
def test_a_text_that_stands_for_another_value_is_no_result(text: str) -> None:
    detail = f"argument or result {text!r}, expected JSON"
    assert refusal(functional_cases, [[0]], [text]) == ("malformed_tests", detail)


@pytest.mark.parametrize(
    ("function", "inputs", "outputs", "detail"),
    [
        (stdin_cases, ["1", "2"], ["1"], "2 inputs and 1 outputs, expected as many"),
        (stdin_cases, "1", ["1"], "inputs and outputs must be two lists"),
        (stdin_cases, None, None, "inputs and outputs must be two lists"),
        (stdin_cases, [{"a": 1}], ["1"], "input or output of type dict, expected a text"),
        (stdin_cases, [None], ["1"], "input or output of type NoneType, expected a text"),
        (stdin_cases, [True], ["1"], "input or output of type bool, expected a text"),
        (functional_cases, ["1"], [], "1 inputs and 0 outputs, expected as many"),
        (functional_cases, ["x"], ["1"], "argument or result 'x', expected JSON"),
        (functional_cases, ["1"], ["NaN"], "argument or result 'NaN', expected JSON"),
        (functional_cases, ["1\n\n2"], ["1"], "argument or result '', expected JSON"),
        (functional_cases, [{"a": 1}], ["1"], "arguments of type dict, expected a list"),
        (functional_cases, [3], ["1"], "arguments of type int, expected a list"),
    ],
)
def test_malformed_pairs(function: Any, inputs: Any, outputs: Any, detail: str) -> None:
    assert refusal(function, inputs, outputs) == ("malformed_tests", detail)


def test_an_argument_of_more_than_a_hundred_levels_is_refused() -> None:
    """Two levels per list of a list and an object; the outermost list of arguments counts."""
    deep: Any = 7
    for _ in range(49):
        deep = [{"a": deep}]
    args = [[deep], 1]
    assert functional_cases([args], [[[[deep]]]]) == [{"args": args, "out": [[deep]]}]
    detail = "more than 100 levels of lists and objects"
    assert refusal(functional_cases, [[[[deep]]]], [1]) == ("malformed_tests", detail)
    assert refusal(functional_cases, [[1]], ["[[[" + json.dumps(deep) + "]]]"])[1] == detail


def test_a_repeated_key_keeps_its_own_reason() -> None:
    reason, detail = refusal(functional_cases, ['{"a": 1, "a": 2}'], ["1"])
    assert (reason, "expected JSON" in detail) == ("malformed_duplicate_key", True)


@pytest.mark.parametrize(
    ("texts", "cases"),
    [
        (["assert f(1) == 2", " assert f(2) == 3\n"], ["assert f(1) == 2", "assert f(2) == 3"]),
        ("assert f(1) == 2\nassert f(2) == 3", ["assert f(1) == 2", "assert f(2) == 3"]),
        ("assert f(1) == 2; assert g()", ["assert f(1) == 2", "assert g()"]),
        (["assert f(\n  [1,\n   2]\n) == 3\r\nassert g('é') == 'ü'"],
         ["assert f(\n  [1,\n   2]\n) == 3", "assert g('é') == 'ü'"]),
        (["import math\nassert f(1) == math.pi"], ["import math\nassert f(1) == math.pi"]),
        (["for i in (1, 2):\n    assert f(i)"], ["for i in (1, 2):\n    assert f(i)"]),
        (["assert f('\\d') == 1  # a warning, not an error"], ["assert f('\\d') == 1"]),
        ([], []),
        (None, []),
    ],
)  # fmt: skip
def test_assert_statements(texts: Any, cases: list[str]) -> None:
    assert assert_cases(texts) == cases


@pytest.mark.parametrize(
    ("texts", "detail"),
    [
        (["f(1) == 2"], "no assert statement in 'f(1) == 2'"),
        ([""], "no assert statement in ''"),
        (["assert f(1) ="], "not Python: "),
        ([7], "test of type int, expected a text"),
        ({"a": 1}, "tests of type dict, expected a list"),
        (["assert '\ud800'"], "not Python: "),
        (["assert " + "(" * 400 + ")" * 400], "not Python: "),
    ],
)
def test_what_is_no_assert_statement(texts: Any, detail: str) -> None:
    reason, found = refusal(assert_cases, texts)
    assert (reason, found[: len(detail)]) == ("malformed_tests", detail)


def test_ten_thousand_statements_in_one_text() -> None:
    cases = assert_cases("\n".join(f"assert f({i}) == {i}" for i in range(10_000)))
    assert (len(cases), cases[9_999]) == (10_000, "assert f(9999) == 9999")


def test_a_module_of_pytest() -> None:
    module = (
        "from solution import f\n\nclass TestF:\n    def test_f(self):\n        assert f(1) == 2\n"
    )
    assert pytest_cases(module) == [module]
    assert pytest_cases(None) == pytest_cases(" \n") == []
    assert refusal(pytest_cases, "def check(): pass") == (
        "malformed_tests",
        "no function whose name starts with test",
    )
    assert refusal(pytest_cases, "def test_f(:")[0] == "malformed_tests"


@pytest.mark.parametrize("entry", ["", "f(x)", "1f", "Solution.f", "class", "f g", "f\0"])
def test_an_entry_that_is_no_name(entry: str) -> None:
    tests = Tests("functional", functional_cases(["1"], ["1"]), entry)
    reason, detail = refusal(code_checks, tests, ALL)
    assert reason == "malformed_tests"
    assert detail == f"entry {entry!r}, expected a function's name"


def test_a_nul_is_data_in_a_test_and_no_code() -> None:
    stdin = Tests("stdin", stdin_cases(["a\0b"], ["\0"]))
    assert json.loads(code_checks(stdin, ALL))["tests"]["cases"][0]["input"] == "a\0b"
    assert refusal(assert_cases, ["assert f() == '\0'"])[0] == "nul"
    assert refusal(pytest_cases, "def test_f():\0 pass")[0] == "nul"
    checker = Tests("stdin", stdin.cases, checker="print(1)\0")
    assert refusal(code_checks, checker, ALL)[0] == "nul"
    assert refusal(code_checks, stdin, ALL, "print(1)\0")[0] == "nul"


def test_no_test_and_no_instruction() -> None:
    assert refusal(code_checks, Tests("stdin", []), ALL) == ("no_tests", "")
    assert refusal(instruction_checks, [], ALL) == ("no_tests", "")


def test_languages() -> None:
    assert [language_of(name) for name in (None, "", "Python3", "py")] == ["python"] * 4
    assert [language_of(name) for name in ("C++", "cpp", "C++17")] == ["cpp"] * 3
    assert refusal(language_of, "rust")[0] == "unsupported_tests"
    assert refusal(language_of, ["python"])[0] == "unsupported_tests"
    tests = Tests("assert", ["assert f()"], language="cpp")
    assert refusal(code_checks, tests, ALL) == (
        "unsupported_tests",
        "C++ with assert tests, expected stdin",
    )


def test_sizes_are_bytes_of_utf8() -> None:
    check_size("é" * 5, ReadLimits(max_bytes=10))
    reason, detail = refusal(check_size, "é" * 5, ReadLimits(max_bytes=9))
    assert (reason, detail) == ("tests_too_large", "more than 9 bytes of tests")
    check_size("x" * 10, ReadLimits(max_bytes=10))
    assert refusal(check_size, "x" * 11, ReadLimits(max_bytes=10))[0] == "tests_too_large"


def test_only_the_tests_that_are_kept_count_towards_the_size() -> None:
    tests = Tests("stdin", stdin_cases(["1", "x" * 200], ["1", "1"]))
    assert "xx" not in code_checks(tests, ReadLimits(max_tests=1, max_bytes=150))
    assert (
        refusal(code_checks, tests, ReadLimits(max_tests=2, max_bytes=150))[0] == "tests_too_large"
    )


def test_large_code_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "CODE_BYTES", 20)
    assert assert_cases(["assert f(12345) == 1"]) == ["assert f(12345) == 1"]
    reason, detail = refusal(assert_cases, ["assert f(123456) == 1"])
    assert (reason, detail) == ("tests_too_large", "a test with 21 characters of code")


def test_values_that_json_lacks() -> None:
    tests = Tests("functional", [{"args": [float("nan")], "out": 1}], "f")
    assert refusal(code_checks, tests, ALL)[0] == "malformed_tests"
    tests = Tests("functional", [{"args": [{1, 2}], "out": 1}], "f")
    assert refusal(code_checks, tests, ALL)[0] == "malformed_tests"
