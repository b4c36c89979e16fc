"""The tests' side of calls: ``from solution import f`` gives functions that run elsewhere.

    def test_f():                       f(3) is a request to the candidate's sandbox; what it
        assert f(3) == 8                returns is compared here, where the candidate is not

The candidate's process never has an expected value, and ``sys.exit``, a replaced ``print`` or an
``__eq__`` that is always true change only itself: an object of the candidate is equal to nothing
but objects of the candidate.

Tests may use ``assert``, ``unittest``, and of pytest: raises, approx, fixture, skip, fail,
mark.parametrize and mark.skip.
"""

from __future__ import annotations

import builtins
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pcl_reasoner.sandbox_program.calls import Channel
    from pcl_reasoner.sandbox_program.pytest_functions import (
        TestsFailed,
        make_pytest,
        run_functions,
    )
    from pcl_reasoner.sandbox_program.solution import load_solution
    from pcl_reasoner.sandbox_program.values import decode, encode

DELEGATED = (
    *("len", "iter", "next", "getitem", "setitem", "delitem", "enter", "exit", "hash", "index"),
    *("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "floordiv", "mod", "pow", "neg"),
    *("abs", "int", "float"),
)
"""Special methods whose value comes from the candidate's object and is compared here."""
JUDGING = ("contains", "lt", "le", "gt", "ge")
"""Special methods that say themselves whether a test holds.

The candidate's object answers them only if the tests name its class.
"""


class Candidate:
    """The candidate's sandbox, as the tests see it."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.functions: dict[int, Any] = {}
        """The tests' functions that were given to the candidate."""
        self.named: set[int] = set()
        """Numbers of the classes that the tests have named."""
        self.exceptions: dict[int, type[BaseException]] = {}
        """Number of the candidate's exception class -> the class that stands for it here."""

    def ask(self, **request: Any) -> Any:
        """Send a request and return the value, or raise what the candidate raised."""
        self.channel.send(request)
        while True:
            reply = self.channel.receive()
            if reply is None:
                raise EOFError("the candidate's process has ended")
            if "callback" not in reply:
                break
            self.call(reply)
        if "raised" in reply:
            raise self.exception(reply["raised"])
        return reply

    def call(self, request: dict[str, Any]) -> None:
        """Call one of the tests' functions for the candidate."""
        try:
            function = self.functions[request["callback"]]
            args, kwargs = (decode(request[name], self.take) for name in ("args", "kwargs"))
            self.channel.send({"returned": encode(function(*args, **kwargs), self.give)})
        except Exception as error:
            self.channel.send({"raised": type(error).__name__, "text": str(error)[:300]})

    def give(self, value: Any) -> dict[str, Any]:
        """Return a value that is no JSON for the candidate: its own object, or a function."""
        if isinstance(value, Remote):
            return {"o": value._number}
        for number, kind in self.exceptions.items():
            if value is kind:
                return {"o": number}
        if callable(value):
            self.functions[id(value)] = value
            return {"n": id(value)}
        raise TypeError(f"a {type(value).__name__} cannot be given to the candidate")

    def take(self, tag: str, content: Any) -> Any:
        """Return what stands here for an object of the candidate."""
        if tag != "o":
            raise ValueError(f"the unknown tag {tag!r}")
        number, kind, classes, names = content
        if kind == "exception":
            return self.exception_class(number, names)
        return Remote(self, number, classes)

    def get(self, name: str) -> Any:
        """Return what has a name in the candidate's module."""
        value = decode(self.ask(op="get", name=name)["value"], self.take)
        if isinstance(value, Remote):
            self.named.add(value._number)
        return value

    def exception_class(self, number: int, names: list[str]) -> type[BaseException]:
        """Return the class that stands for a class of the candidate's exceptions."""
        if number not in self.exceptions:
            found = (getattr(builtins, name, None) for name in names)
            known = [one for one in found if isinstance(one, type)]
            base = next((one for one in known if issubclass(one, Exception)), RuntimeError)
            own = base if base.__name__ == names[0] else type(names[0], (base,), {})
            self.exceptions[number] = own
        return self.exceptions[number]

    def exception(self, told: dict[str, Any]) -> BaseException:
        """Return the exception that stands for one that the candidate raised."""
        number, _, _, names = told["class"]
        kind = self.exception_class(number, names)
        try:
            return kind(*decode(told["args"], self.take))
        except Exception:
            return RuntimeError(told["text"])

    def use(self, request: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function or method; lists, sets and dicts in ``args`` change as they do there."""
        written = {"args": encode(args, self.give), "kwargs": encode(kwargs, self.give)}
        reply = self.ask(**request, **written)
        if reply.get("args", written["args"]) != written["args"]:
            for old, new in zip(args, decode(reply["args"], self.take)):
                _replace(old, new)
        return decode(reply["value"], self.take)


def _replace(old: Any, new: Any) -> None:
    """Give a list, a set or a dict another's content."""
    if type(old) is not type(new) or old == new:
        return
    if isinstance(old, list):
        old[:] = new
    elif isinstance(old, (set, dict)):
        old.clear()
        old.update(new)


class Remote:
    """An object, a class or a function of the candidate."""

    def __init__(self, candidate: Candidate, number: int, classes: list[int]) -> None:
        own = vars(self)
        own["_candidate"], own["_number"], own["_classes"] = candidate, number, classes

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._candidate.use({"op": "call", "on": {"o": self._number}}, args, kwargs)

    def _method(self, name: str, *args: Any) -> Any:
        request = {"op": "call", "on": {"o": self._number}, "name": name}
        return self._candidate.use(request, args, {})

    def __getattr__(self, name: str) -> Any:
        reply = self._candidate.ask(op="attribute", on={"o": self._number}, name=name)
        return decode(reply["value"], self._candidate.take)

    def __setattr__(self, name: str, value: Any) -> None:
        written = encode(value, self._candidate.give)
        self._candidate.ask(op="set", on={"o": self._number}, name=name, value=written)

    def __eq__(self, other: object) -> bool:
        # A value of the tests is never compared by the candidate's own method.
        return isinstance(other, Remote) and self._method("__eq__", other) is True

    def __bool__(self) -> bool:
        return True

    def __str__(self) -> str:
        return str(self._method("__str__"))

    def __repr__(self) -> str:
        return str(self._method("__repr__"))

    def __instancecheck__(self, value: object) -> bool:
        return isinstance(value, Remote) and self._number in value._classes

    def _judge(self, name: str, other: Any) -> Any:
        if not self._candidate.named.intersection(self._classes):
            raise TypeError(f"{name} of an object whose class the tests do not name")
        return self._method(name, other)


def _delegate(name: str, judges: bool) -> Any:
    if judges:
        return lambda self, other: self._judge(name, other)
    return lambda self, *args: self._method(name, *args)


for _name in [*DELEGATED, *JUDGING]:
    setattr(Remote, f"__{_name}__", _delegate(f"__{_name}__", _name in JUDGING))


class Solution(type(sys)):  # type: ignore[misc]
    """The module ``solution``: whatever is imported from it is the candidate's."""

    def __init__(self, candidate: Candidate) -> None:
        super().__init__("solution")
        self.__dict__["_candidate"] = candidate
        self.__dict__["__all__"] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._candidate.get(name)


class Names(dict):  # type: ignore[type-arg]
    """The names of asserts without an import: unknown ones are the candidate's."""

    def __init__(self, module: Solution) -> None:
        super().__init__(__name__="tests", __builtins__=builtins)
        self.module = module

    def __missing__(self, name: str) -> Any:
        if hasattr(builtins, name):
            return getattr(builtins, name)
        try:
            return getattr(self.module, name)
        except AttributeError:
            raise NameError(f"name {name!r} is not defined") from None


def run_tests(code: str, given: int, taken: int) -> int:
    """Run the tests' code against the candidate in another sandbox; say whether they pass."""
    channel = Channel(given, taken)
    module = Solution(Candidate(channel))
    sys.modules["solution"] = module
    channel.send({"verdict": _verdict(code, lambda: Names(module))})
    return 0


def run_shared(solution: str, code: str, given: int, taken: int) -> int:
    """Run the tests' code and the candidate's in one interpreter.

    The word that says that the tests have passed is read before the candidate's code runs, and is
    in no variable that the candidate's code can name. A candidate that searches the interpreter's
    memory can find it: that is why these tests count as weak.
    """
    channel = Channel(given, taken)

    def judge(word: str) -> dict[str, Any]:
        verdict = _verdict(code, lambda: dict(vars(load_solution(solution)), __name__="tests"))
        return {**verdict, "word": word}

    message = channel.receive() or {}
    channel.send({"verdict": judge(message.pop("word", ""))})
    return 0


def _verdict(code: str, make_names: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Run the tests' code; return whether all tests pass, their number, and the first failure."""
    sys.modules["pytest"] = make_pytest()
    try:
        names = make_names()
        exec(compile(code, "tests.py", "exec"), names)
        number = run_functions(dict(names))
    except TestsFailed as error:
        return {"passed": False, "error": str(error)[:500]}
    except BaseException as error:
        import traceback

        text = traceback.format_exception_only(type(error), error)[-1].strip()
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__)]
        return {"passed": False, "error": f"line {lines[-1] if lines else 0}: {text}"[:500]}
    return {"passed": True, "tests": number}
