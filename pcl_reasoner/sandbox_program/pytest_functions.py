"""The part of pytest that tests of code datasets use, without pytest.

    import pytest

    @pytest.mark.parametrize("x, doubled", [(1, 2), (3, 6)])
    def test_double(x, doubled):
        assert double(x) == doubled

The interpreter in a sandbox has no packages. What is not here raises AttributeError, so that such a
test fails for the reference solution too, and is found.
"""

from __future__ import annotations

import itertools
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any


class TestsFailed(Exception):
    """Raised for the first test that fails; the message says which and why."""


class Skipped(BaseException):
    """Raised by ``pytest.skip``."""


class Raises:
    """``pytest.raises``: the block must raise an exception of these classes."""

    def __init__(self, expected: Any, match: str | None = None) -> None:
        self.expected, self.match = expected, match
        self.value: BaseException | None = None

    def __enter__(self) -> Raises:
        return self

    def __exit__(self, kind: Any, error: Any, _: Any) -> bool:
        if error is None:
            raise AssertionError(f"did not raise {self.expected}")
        if not isinstance(error, self.expected):
            return False
        if self.match is not None:
            import re

            if re.search(self.match, str(error)) is None:
                raise AssertionError(f"{str(error)!r} does not match {self.match!r}")
        self.value = error
        return True


class Approximately:
    """``pytest.approx``: equal to a number within 1e-6 of it, or 1e-12; containers by item."""

    def __init__(self, expected: Any, rel: float | None = None, abs: float | None = None) -> None:
        self.expected = expected
        self.relative = 1e-6 if rel is None else rel
        self.absolute = 1e-12 if abs is None else abs
        if rel is None and abs is not None:
            self.relative = 0.0

    def __eq__(self, other: object) -> bool:
        return self._close(self.expected, other)

    def __repr__(self) -> str:
        return f"approx({self.expected!r})"

    def _close(self, expected: Any, found: Any) -> bool:
        if isinstance(expected, dict):
            same = isinstance(found, dict) and expected.keys() == found.keys()
            return same and all(self._close(expected[key], found[key]) for key in expected)
        if isinstance(expected, (list, tuple)):
            same = isinstance(found, (list, tuple)) and len(expected) == len(found)
            return same and all(map(self._close, expected, found))
        if not isinstance(expected, (int, float)) or not isinstance(found, (int, float)):
            return bool(expected == found)
        if expected == found:
            return True
        margin = max(self.relative * abs(expected), self.absolute)
        return abs(expected - found) <= margin < float("inf")


class Mark:
    """``pytest.mark``: parametrize and skip count, other marks do nothing."""

    def parametrize(self, names: Any, values: Any, **_: Any) -> Callable[[Any], Any]:
        """Run a test once for each of the values."""
        listed = [one.strip() for one in names.split(",")] if isinstance(names, str) else [*names]
        rows = [value if len(listed) > 1 else (value,) for value in values]
        cases = [dict(zip(listed, row)) for row in rows]

        def decorate(function: Any) -> Any:
            function._cases = [cases, *getattr(function, "_cases", [])]
            return function

        return decorate

    def skip(self, *args: Any, **_: Any) -> Any:
        """Leave a test out."""

        def decorate(function: Any) -> Any:
            function._skipped = True
            return function

        return decorate(args[0]) if args and callable(args[0]) else decorate

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **_: args[0] if args and callable(args[0]) else lambda one: one


def fixture(*args: Any, **_: Any) -> Any:
    """Mark a function whose value tests ask for by its name."""

    def decorate(function: Any) -> Any:
        function._is_fixture = True
        return function

    return decorate(args[0]) if args else decorate


def _fail(reason: str = "", **_: Any) -> None:
    raise AssertionError(reason)


def _skip(reason: str = "", **_: Any) -> None:
    raise Skipped(reason)


def make_pytest() -> Any:
    """Return the module ``pytest``."""
    module = type(sys)("pytest")
    parts = {"raises": Raises, "approx": Approximately, "mark": Mark(), "fixture": fixture}
    # A test file may end with pytest.main(); its functions run without it.
    vars(module).update(parts, fail=_fail, skip=_skip, main=lambda *args, **_: 0)
    return module


def run_functions(names: dict[str, Any]) -> int:
    """Run the test functions, the methods of test classes and the unittest cases.

    Returns:
        How many tests ran.

    Raises:
        TestsFailed: A test failed.
    """
    number = 0
    fixtures = {name: one for name, one in names.items() if getattr(one, "_is_fixture", False)}
    for name, value in names.items():
        if isinstance(value, type) and _is_unittest(value):
            number += _run_unittest(value)
        elif isinstance(value, type) and name.startswith("Test"):
            for method in [one for one in dir(value) if one.startswith("test")]:
                instance = value()
                getattr(instance, "setup_method", lambda: None)()
                number += _run_function(f"{name}.{method}", getattr(instance, method), fixtures)
        elif name.startswith("test") and hasattr(value, "__code__"):
            number += _run_function(name, value, fixtures)
    return number


def _is_unittest(kind: type) -> bool:
    return any(base.__module__ == "unittest.case" for base in kind.__mro__[1:])


def _run_unittest(kind: type) -> int:
    import unittest

    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(kind).run(result)
    for test, text in [*result.errors, *result.failures]:
        raise TestsFailed(f"{test}: {text.strip().splitlines()[-1]}")
    return result.testsRun


def _run_function(name: str, function: Any, fixtures: dict[str, Any]) -> int:
    """Run a test function, once per case; return how many times."""
    if getattr(function, "_skipped", False):
        return 0
    number = 0
    for cases in itertools.product(*getattr(function, "_cases", [[{}]])):
        known = {key: value for case in cases for key, value in case.items()}
        try:
            with_fixtures(function, known, fixtures)
        except Skipped:
            continue
        except Exception as error:
            raise TestsFailed(f"{name}: {type(error).__name__}: {error}") from error
        number += 1
    return number


def with_fixtures(function: Any, known: dict[str, Any], fixtures: dict[str, Any]) -> Any:
    """Call a function with its parameters: values of the case, and fixtures."""
    code = function.__code__
    names = code.co_varnames[: code.co_argcount]
    values = {}
    for name in names[1:] if hasattr(function, "__self__") else names:
        if name in known:
            values[name] = known[name]
        elif name in fixtures:
            values[name] = _first(with_fixtures(fixtures[name], known, fixtures))
        elif len(names) - len(function.__defaults__ or ()) > names.index(name):
            raise LookupError(f"no fixture {name}")
    return function(**values)


def _first(value: Any) -> Any:
    """Return what a fixture yields, or its value."""
    iterator: Iterator[Any] | None = value if hasattr(value, "gi_frame") else None
    return value if iterator is None else next(iterator)
