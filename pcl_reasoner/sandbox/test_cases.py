"""The tests of a problem, as its column ``checks`` has them.

{"language": "python", "format": "functional", "entry": "double",
 "cases": [{"args": [3], "out": 6}, {"args": [0], "out": 0}]}

stdin       a program is run: {"input": "3\\n", "output": "6\\n"}
functional  a function is called, by name or as a method of ``class Solution``
assert      a case is one statement: "assert double(3) == 6"
pytest      a case is a file of tests: "from solution import double\\n\\ndef test_double(): …"
"""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from pcl_reasoner.sandbox.limits import Limits

MAX_MEGABYTES = 4096
"""MiB of memory that a problem's own limit can be at most."""
MAX_SECONDS = 30.0
"""Seconds that a problem's own limit can be at most."""


class TestCases(BaseModel):
    """The tests of one problem."""

    # pytest would collect a class with this name.
    __test__ = False
    model_config = ConfigDict(extra="forbid", frozen=True)

    language: Literal["python", "cpp"] = "python"
    """Language of the candidate's program."""
    format: Literal["stdin", "functional", "assert", "pytest"]
    """What a case is."""
    entry: str | None = None
    """Functional: the name of the function."""
    cases: tuple[Any, ...] = Field(min_length=1)
    """The cases."""
    checker: str | None = None
    """stdin: Python source of a program that compares outputs, in place of our comparison. It is
    called with the names of three files (input, expected output, output) and prints 1 or 0."""
    seconds: float | None = Field(None, gt=0)
    """The source's limit of time for one test, see `limited`; None for the stage's."""
    megabytes: int | None = Field(None, gt=0)
    """The source's limit of memory in MiB, see `limited`; None for the stage's."""

    @model_validator(mode="after")
    def _cases_have_their_form(self) -> TestCases:
        if self.format == "functional" and not (self.entry or "").isidentifier():
            raise ValueError(f"entry is {self.entry!r}, expected the name of a function")
        if self.language == "cpp" and self.format != "stdin":
            raise ValueError(f"C++ is tested by stdin, got {self.format}")
        for number, case in enumerate(self.cases):
            if problem := _wrong(self.format, case):
                raise ValueError(f"case {number}: {problem}")
        return self

    def limited(self, limits: Limits, language: str | None = None) -> Limits:
        """Return the limits of these tests.

        Contests set their limits for C++, where they come before the stage's. A program in Python
        gets the larger of both.

        Args:
            limits: The stage's.
            language: The program's language; None for the candidate's.
        """
        own = replace(
            limits,
            seconds=min(self.seconds, MAX_SECONDS) if self.seconds else limits.seconds,
            megabytes=min(self.megabytes, MAX_MEGABYTES) if self.megabytes else limits.megabytes,
        )
        if (language or self.language) == "cpp":
            return own
        seconds, megabytes = max(own.seconds, limits.seconds), max(own.megabytes, limits.megabytes)
        return replace(own, seconds=seconds, megabytes=megabytes)


def _wrong(format: str, case: Any) -> str | None:
    """Return what is wrong with a case, or None."""
    if format in ("assert", "pytest"):
        return _wrong_code(case)
    keys = ("input", "output") if format == "stdin" else ("args", "out")
    if not isinstance(case, dict) or set(case) != set(keys):
        return f"expected an object with {keys[0]} and {keys[1]}, got {str(case)[:60]}"
    if format == "stdin":
        wrong = [key for key in keys if not isinstance(case[key], str)]
        return f"{wrong[0]} is no text" if wrong else None
    return None if isinstance(case["args"], list) else f"args is {str(case['args'])[:60]}, no list"


def _wrong_code(case: Any) -> str | None:
    if not isinstance(case, str):
        return f"expected Python code, got {str(case)[:60]}"
    try:
        compile(case, "tests.py", "exec", dont_inherit=True, flags=ast.PyCF_ONLY_AST)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"is no Python code: {error}"
    return None


def read_test_cases(value: Any) -> TestCases:
    """Return the tests that ``checks`` has.

    Raises:
        ValueError: They are not what this module says; the message names the first difference.
    """
    try:
        return TestCases.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "tests"
        raise ValueError(f"{place}: {first['msg']}") from error


def literal_call(statement: str) -> tuple[str, list[Any], Any] | None:
    """Return function, arguments and expected value of an assert that compares with a literal.

    ``assert f(3, [1]) == {"a": 1}`` gives ("f", [3, [1]], {"a": 1}). Such an assert needs no code
    of the tests: the function is called, and its value is compared outside. None for others.
    """
    try:
        (node,) = ast.parse(statement).body
    except (SyntaxError, ValueError):
        return None
    if not isinstance(node, ast.Assert):
        return None
    compared = node.test
    if not isinstance(compared, ast.Compare) or len(compared.ops) != 1:
        return None
    if not isinstance(compared.ops[0], ast.Eq):
        return None
    called, expected = compared.left, compared.comparators[0]
    if not isinstance(called, ast.Call) or not isinstance(called.func, ast.Name) or called.keywords:
        return None
    try:
        args = [ast.literal_eval(argument) for argument in called.args]
        return called.func.id, args, ast.literal_eval(expected)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


SHARED = {"inspect", "mock", "patch", "monkeypatch", "reload", "importlib", "capsys", "getsource"}
"""Names in tests that look into the candidate's module, which only one interpreter allows."""


def needs_one_interpreter(code: str) -> bool:
    """Return whether tests must run in the interpreter of the candidate's code.

    It depends on the tests alone: a candidate must not be able to choose it.
    """
    tree = ast.parse(code)
    names = {
        name
        for node in ast.walk(tree)
        for name in (
            getattr(node, "id", None),
            getattr(node, "attr", None),
            getattr(node, "arg", None),
            getattr(node, "module", None),
            getattr(node, "name", None),
        )
        if isinstance(name, str)
    }
    if names & SHARED or any(name.startswith("unittest.mock") for name in names):
        return True
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "solution"
        for alias in node.names
    }
    classes = (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    bases = {getattr(base, "id", "") for one in classes for base in one.bases}
    return bool(bases & imported) or "*" in imported
