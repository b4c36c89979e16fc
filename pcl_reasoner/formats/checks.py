"""The column ``checks``: what a verifier needs to judge a response to a problem.

    {"tests": {"language": "python", "format": "functional", "entry": "add",
               "cases": [{"args": [1, 2], "out": 3}]}, "reference": "def add(a, b): …"}

    format       one case
    stdin        {"input": "3\\n", "output": "6\\n"}; with "checker", Python source, for the problem
    functional   {"args": [1, 2], "out": 3}: JSON values; "entry" is a function or a method of the
                 class Solution
    assert       "assert add(1, 2) == 3": one statement, or a text with an assert statement
    pytest       a module with test functions that imports from solution

"seconds" and "megabytes" are the source's own limits, where it has some. Instructions are
{"instructions": [{"id": "punctuation:no_comma", "kwargs": {}}]}.

The first ``max_tests`` tests in the source's order are kept; public tests come before hidden ones.
A module of pytest is one test, whatever number of functions it has.
"""

from __future__ import annotations

import ast
import json
import keyword
import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pcl_reasoner.formats.records import Malformed, ReadLimits, Reason, parse_json
from pcl_reasoner.formats.texts import CODE_BYTES

MAX_DEPTH = 100
"""Most levels of lists and objects in an argument or a result; what runs tests is recursive."""
SHOWN = 80
"""Maximum characters of a test in a message."""
LANGUAGES = {
    **dict.fromkeys(("", "py", "python", "python3"), "python"),
    **dict.fromkeys(("c++", "cpp", "c++17", "cpp17", "c++20", "cpp20"), "cpp"),
}
"""A source's name of a language -> ours. Without a name, tests are of Python programs."""


@dataclass(frozen=True)
class Tests:
    """All tests of a problem; the module's docstring shows the cases.

    Args:
        format: The form of the cases.
        cases: The cases, in the source's order.
        entry: Name of the function that is called; only for functional tests.
        language: python or cpp.
        checker: Python source that judges an output, or "".
        seconds: The source's time limit per test.
        megabytes: The source's memory limit.
    """

    __test__ = False  # pytest collects classes of this name

    format: Literal["stdin", "functional", "assert", "pytest"]
    cases: Sequence[Any]
    entry: str = ""
    language: str = "python"
    checker: str = ""
    seconds: float | None = None
    megabytes: int | None = None


def code_checks(tests: Tests, limits: ReadLimits, reference: str = "") -> str:
    """Return the JSON of tests, after a check of what every format has.

    Args:
        tests: All tests of the problem.
        limits: How many tests are kept, and their largest size.
        reference: A solution that the source gives, or "".

    Raises:
        Malformed: There is no test, there are too many bytes of tests, the entry is not a name,
            code has a NUL, or a C++ program is not tested by stdin.
    """
    if not tests.cases:
        raise Malformed(Reason.NO_TESTS)
    if tests.language == "cpp" and tests.format != "stdin":
        raise Malformed(Reason.UNSUPPORTED_TESTS, f"C++ with {tests.format} tests, expected stdin")
    if tests.format == "functional":
        check_name(tests.entry)
    kept = list(tests.cases[: limits.max_tests])
    code = [tests.checker, reference, *(kept if tests.format in ("assert", "pytest") else ())]
    if any("\0" in text for text in code):
        raise Malformed(Reason.NUL)
    found: dict[str, Any] = {"language": tests.language, "format": tests.format}
    optional = {
        "entry": tests.entry if tests.format == "functional" else "",
        "cases": kept,
        "checker": tests.checker,
        "seconds": tests.seconds,
        "megabytes": tests.megabytes,
    }
    found |= {name: value for name, value in optional.items() if value}
    return _written({"tests": found, **({"reference": reference} if reference else {})}, limits)


def instruction_checks(instructions: Sequence[dict[str, Any]], limits: ReadLimits) -> str:
    """Return the JSON of instructions, each with its id and its kwargs.

    Raises:
        Malformed: There is no instruction, or there are too many bytes.
    """
    if not instructions:
        raise Malformed(Reason.NO_TESTS)
    return _written({"instructions": list(instructions)}, limits)


def _written(found: dict[str, Any], limits: ReadLimits) -> str:
    # Keys keep their order: a dictionary among the arguments of a function may be iterated.
    try:
        text = json.dumps(found, ensure_ascii=False, allow_nan=False)
    except (ValueError, TypeError, RecursionError) as error:
        raise Malformed(Reason.MALFORMED_TESTS, f"not JSON: {error}") from error
    check_size(text, limits)
    return text


def check_size(text: str, limits: ReadLimits) -> None:
    """Refuse tests that are too large.

    Raises:
        Malformed: The text has more than ``limits.max_bytes`` bytes of UTF-8.
    """
    # A character has 1 to 4 bytes; most texts need no count of bytes.
    if 4 * len(text) <= limits.max_bytes:
        return
    if (
        len(text) > limits.max_bytes
        or len(text.encode("utf-8", "surrogatepass")) > limits.max_bytes
    ):
        raise Malformed(Reason.TESTS_TOO_LARGE, f"more than {limits.max_bytes} bytes of tests")


def check_name(entry: str) -> None:
    """Refuse what cannot be a function's name.

    Raises:
        Malformed: It is no name, or a keyword.
    """
    if not entry.isidentifier() or keyword.iskeyword(entry):
        raise Malformed(
            Reason.MALFORMED_TESTS, f"entry {entry[:SHOWN]!r}, expected a function's name"
        )


def language_of(name: Any) -> str:
    """Return python or cpp for a source's name of a language.

    Raises:
        Malformed: The language is another one.
    """
    found = LANGUAGES.get(str(name or "").strip().lower())
    if found is None:
        raise Malformed(Reason.UNSUPPORTED_TESTS, f"language {name!r}, expected Python or C++")
    return found


def stdin_cases(inputs: Any, outputs: Any) -> list[dict[str, str]]:
    """Pair inputs with outputs. A list of lines, which APPS has, becomes one text.

    Raises:
        Malformed: They differ in number, or one is neither a text nor a list of lines.
    """
    return [
        {"input": _stdin_text(given), "output": _stdin_text(expected)}
        for given, expected in _pairs(inputs, outputs)
    ]


def _pairs(inputs: Any, outputs: Any) -> Iterable[tuple[Any, Any]]:
    if not isinstance(inputs, list) or not isinstance(outputs, list):
        raise Malformed(Reason.MALFORMED_TESTS, "inputs and outputs must be two lists")
    if len(inputs) != len(outputs):
        numbers = f"{len(inputs)} inputs and {len(outputs)} outputs"
        raise Malformed(Reason.MALFORMED_TESTS, f"{numbers}, expected as many")
    return zip(inputs, outputs, strict=True)


def _stdin_text(value: Any) -> str:
    if isinstance(value, list):
        return "\n".join(_stdin_text(line) for line in value)
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _number(value)
    kind = type(value).__name__
    raise Malformed(Reason.MALFORMED_TESTS, f"input or output of type {kind}, expected a text")


def _number(value: int | float) -> str:
    try:
        return str(value)
    except ValueError as error:  # Python limits the digits of an integer
        raise Malformed(Reason.MALFORMED_TESTS, f"input or output: {error}") from error


def functional_cases(inputs: Any, outputs: Any) -> list[dict[str, Any]]:
    """Pair the arguments of a function's calls with what they return.

    APPS puts every value that a function returns into a list of one. Its grader accepts, test by
    test, the list and its first item. Here the problem decides: if all of its results are lists of
    one item, these items are the values; if not, the lists are.

    Args:
        inputs: Per call a list of arguments (APPS), or a text with one JSON value per line
            (LiveCodeBench).
        outputs: Per call a JSON text, a text that is the value itself, or another value.

    Raises:
        Malformed: They differ in number, an argument or a result is not JSON, or a value is nested
            too deeply.
    """
    pairs = list(_pairs(inputs, outputs))
    wrapped = all(isinstance(expected, list) and len(expected) == 1 for _, expected in pairs)
    cases = [
        {"args": _arguments(given), "out": expected[0] if wrapped else _result(expected)}
        for given, expected in pairs
    ]
    check_depth([value for case in cases for value in case.values()])
    return cases


def check_depth(values: Sequence[Any], most: int = MAX_DEPTH) -> None:
    """Refuse values with more than ``most`` levels of lists and objects.

    Without this limit, the limit would be that of Python's stack, which differs between programs.

    Raises:
        Malformed: A value has more.
    """
    level = _containers(values)
    for _ in range(most):
        level = [inner for one in level for inner in _containers(one)]
    if level:
        detail = f"more than {most} levels of lists and objects"
        raise Malformed(Reason.MALFORMED_TESTS, detail)


def _containers(value: Any) -> list[Any]:
    """Return the lists and objects directly in a list or an object."""
    found = value.values() if isinstance(value, dict) else value
    return [one for one in found if isinstance(one, list | dict)]


def _arguments(given: Any) -> list[Any]:
    if isinstance(given, str):
        text = given.strip("\n")
        return [_json(line) for line in text.split("\n")] if text.strip() else []
    if not isinstance(given, list):
        kind = type(given).__name__
        raise Malformed(Reason.MALFORMED_TESTS, f"arguments of type {kind}, expected a list")
    return given


def _result(expected: Any) -> Any:
    if not isinstance(expected, str):
        return expected
    try:
        return _json(expected)
    except Malformed:
        if _stands_for_a_value(expected):
            raise
        return expected


def _stands_for_a_value(text: str) -> bool:
    """Whether a text that is not JSON means another value than itself: NaN, True, (1, 2), [1."""
    if text.lstrip()[:1] in ("[", "{", "(", '"') or len(text) > CODE_BYTES:
        return True
    for read in (json.loads, ast.literal_eval):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                read(text)
            return True
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            continue
    return False


def _json(text: str) -> Any:
    try:
        return parse_json(text, Reason.MALFORMED_TESTS)
    except Malformed as error:
        detail = f"argument or result {text[:SHOWN]!r}, expected JSON"
        raise Malformed(str(error), detail) from error


def assert_cases(texts: Any) -> list[str]:
    """Return assert statements, one per case; a text of several statements is split.

    A text that also has other statements, e.g. imports, stays whole, because they are needed.

    Args:
        texts: A list of texts, or one text.

    Raises:
        Malformed: A text is not Python, or has no assert statement.
    """
    found: list[str] = []
    for given in [texts] if isinstance(texts, str) else _list(texts):
        text = given.strip() if isinstance(given, str) else given
        tree = _parsed(text)
        if tree.body and all(isinstance(one, ast.Assert) for one in tree.body):
            found += _segments(text, tree.body)
        elif any(isinstance(node, ast.Assert) for node in ast.walk(tree)):
            found.append(text)
        else:
            detail = f"no assert statement in {text[:SHOWN]!r}"
            raise Malformed(Reason.MALFORMED_TESTS, detail)
    return found


def _segments(text: str, statements: Sequence[ast.stmt]) -> list[str]:
    """Return the source of each statement.

    ast.get_source_segment would split the whole text again for every statement.
    """
    # The syntax tree counts columns in bytes, and lines as Python's tokenizer does.
    lines = [line.encode("utf-8") for line in re.split(r"\r\n|\r|\n", text)]
    found = []
    for one in statements:
        last = (one.end_lineno or one.lineno) - 1
        kept = lines[one.lineno - 1 : last + 1]
        kept[-1] = kept[-1][: one.end_col_offset]
        kept[0] = kept[0][one.col_offset :]
        found.append(b"\n".join(kept).decode("utf-8"))
    return found


def pytest_cases(text: Any) -> list[str]:
    """Return a module of pytest as one case, or no case if there is no text.

    Raises:
        Malformed: It is not Python, or has no function whose name starts with ``test``.
    """
    if text is None or (isinstance(text, str) and not text.strip()):
        return []
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(_parsed(text)) if isinstance(node, functions)]
    if not any(node.name.startswith("test") for node in nodes):
        raise Malformed(Reason.MALFORMED_TESTS, "no function whose name starts with test")
    return [text]


def _list(value: Any) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        kind = type(value).__name__
        raise Malformed(Reason.MALFORMED_TESTS, f"tests of type {kind}, expected a list")
    return value


def _parsed(text: Any) -> ast.Module:
    if not isinstance(text, str):
        kind = type(text).__name__
        raise Malformed(Reason.MALFORMED_TESTS, f"test of type {kind}, expected a text")
    if len(text) > CODE_BYTES:
        raise Malformed(Reason.TESTS_TOO_LARGE, f"a test with {len(text)} characters of code")
    if "\0" in text:
        raise Malformed(Reason.NUL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Malformed(Reason.MALFORMED_TESTS, f"not Python: {error}") from error
