"""The candidate's side of calls: its functions and objects, used from outside its process.

    request  {"op": "run", "name": "f", "args": {"t": [3]}}      -> {"value": 8}
    request  {"op": "get", "name": "f"}                          -> {"value": {"o": [1, …]}}
    request  {"op": "call", "on": {"o": 1}, "args": {"t": [3]}}  -> {"value": 8, "args": …}
    request  {"op": "call", "on": {"o": 1}, "args": {"t": []}}   -> {"raised": {…}}

A value that values.py cannot write stays here, and its number goes out. Functions of the
tests come in as numbers; calling one is a request in the other direction: {"callback": 7, …}.
"""

from __future__ import annotations

import builtins
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pcl_reasoner.sandbox_program.messages import dumps, loads
    from pcl_reasoner.sandbox_program.values import decode, encode

# Bound now, because the candidate's code may replace what the module contains.
_os_read, _os_write = os.read, os.write


class Channel:
    """Lines of JSON in both directions."""

    def __init__(self, given: int, taken: int) -> None:
        self.given, self.taken = given, taken
        self.rest = b""

    def send(self, message: dict[str, Any]) -> None:
        """Send a message."""
        data = dumps(message) + b"\n"
        while data:
            data = data[_os_write(self.taken, data) :]

    def receive(self) -> dict[str, Any] | None:
        """Wait for a message; None when there will be none."""
        parts = [self.rest]
        while b"\n" not in parts[-1]:
            data = _os_read(self.given, 1 << 16)
            if not data:
                return None
            parts.append(data)
        line, _, self.rest = b"".join(parts).partition(b"\n")
        message: dict[str, Any] = loads(line)
        return message


class Objects:
    """The objects that were given out by number, and the functions that came in."""

    def __init__(self, module: Any, channel: Channel) -> None:
        self.module = module
        self.channel = channel
        self.given: dict[int, Any] = {}

    def give(self, value: Any) -> dict[str, Any]:
        """Keep an object; return its number, what it is, and its classes by number and name."""
        self.given[id(value)] = value
        kind = "object"
        if isinstance(value, type):
            kind = "exception" if issubclass(value, BaseException) else "class"
        classes = (value if isinstance(value, type) else type(value)).__mro__
        names = [one.__name__ for one in classes]
        return {"o": [id(value), kind, list(map(id, classes)), names]}

    def take(self, tag: str, content: Any) -> Any:
        """Return the object with a number, or a function that calls one of the tests'."""
        if tag == "o":
            return self.given[content]
        if tag == "n":
            return lambda *args, **kwargs: self.call_back(content, args, kwargs)
        raise ValueError(f"the unknown tag {tag!r}")

    def call_back(self, number: int, args: Any, kwargs: Any) -> Any:
        """Call one of the tests' functions; meanwhile requests are answered."""
        values = [encode(part, self.give) for part in (args, kwargs)]
        self.channel.send({"callback": number, "args": values[0], "kwargs": values[1]})
        while True:
            message = self.channel.receive()
            if message is None:
                raise EOFError
            if "returned" in message:
                return decode(message["returned"], self.take)
            if "raised" in message:
                raise getattr(builtins, message["raised"], Exception)(message["text"])
            self.answer(message)

    def answer(self, request: dict[str, Any]) -> None:
        """Answer one request."""
        try:
            reply = self.reply(request)
        except BaseException as error:
            reply = {"raised": self.describe(error)}
        self.channel.send(reply)

    def reply(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do what a request asks for."""
        operation = request["op"]
        if operation == "run":
            function = find_entry(self.module, request["name"])
            return {"value": encode(function(*decode(request["args"])), self.give)}
        if operation == "names":
            return {"value": [name for name in vars(self.module) if not name.startswith("_")]}
        if operation == "get":
            return {"value": encode(getattr(self.module, request["name"]), self.give)}
        on = decode(request["on"], self.take)
        if operation == "attribute":
            return {"value": encode(getattr(on, request["name"]), self.give)}
        if operation == "set":
            setattr(on, request["name"], decode(request["value"], self.take))
            return {"value": None}
        args = decode(request["args"], self.take)
        kwargs = decode(request.get("kwargs", {"d": []}), self.take)
        function = getattr(on, request["name"]) if "name" in request else on
        value = function(*args, **kwargs)
        # A function may change its arguments, which the tests may look at.
        return {"value": encode(value, self.give), "args": encode(args, self.give)}

    def describe(self, error: BaseException) -> dict[str, Any]:
        """Return an exception as JSON values."""
        kind = type(error)
        try:
            arguments = encode(error.args, self.give)
        except BaseException:
            arguments = {"t": []}
        text = "".join(str(error).splitlines()[:1])[:300]
        return {"class": self.give(kind)["o"], "args": arguments, "text": text}


def find_entry(module: Any, name: str) -> Any:
    """Return a function of the candidate's code by name; else the method of its class Solution.

    Raises:
        AttributeError: There is neither.
    """
    if not hasattr(module, name) and hasattr(module, "Solution"):
        return getattr(module.Solution(), name)
    return getattr(module, name)


def answer_calls(load: Callable[[], Any], given: int, taken: int) -> int:
    """Load the candidate's code and answer requests until there are none; return the exit code.

    An error of the loading is the answer to every request.
    """
    channel = Channel(given, taken)
    objects = Objects(None, channel)
    failed = None
    try:
        objects.module = load()
    except BaseException as error:
        failed = {"raised": objects.describe(error)}
    while (request := channel.receive()) is not None:
        if failed is None:
            objects.answer(request)
        else:
            channel.send(failed)
    return 0
