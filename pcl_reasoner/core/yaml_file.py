"""Reads YAML of a person's writing: plain values only, and within limits that no real file reaches.

A recipe is data, and so is one that somebody else wrote. A file of a few lines can name itself a
billion times, nest a thousand levels deep, or be a device that never ends. Each is refused with
one sentence before it costs more than a second:

    recipe.yaml: not valid YAML: aliases make it larger than 10,000 values (line 7, column 12)
"""

import os
import re
import stat
from pathlib import Path
from typing import Any, NoReturn

import yaml

from pcl_reasoner.core.errors import InputError, shortened

MAX_BYTES = 256 * 1024
"""Size of a file or of an override's value; the largest shipped recipe has 11 KB."""
MAX_DEPTH = 50
"""Levels of nesting; shipped recipes have 5. So code that walks a value may use recursion."""
MAX_VALUES = 10_000
"""Keys and values, where an alias counts as what it stands for; shipped recipes have 500."""
MAX_INTEGER = 2**63 - 1
"""Largest whole number: what follows reads numbers into 64 bits."""
_TOO_LARGE = "a whole number of more than 64 bits"

_TAG = "tag:yaml.org,2002:"
_KINDS = ("null", "bool", "int", "float", "str", "seq", "map", "merge", "value")
_TAGS = frozenset(f"{_TAG}{kind}" for kind in _KINDS)
"""What JSON can represent. Others (set, binary, timestamp, python/…) are refused."""


class _Loader(yaml.SafeLoader):
    """YAML's safe loader within the limits; it refuses a key that appears twice in one mapping."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._depth = self._read = 0
        self._measured: dict[yaml.Node, tuple[int, int]] = {}
        """Complete node -> (its values, its levels), with aliases replaced by what they name."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Read one value and those inside it."""
        event = self.peek_event()  # type: ignore[no-untyped-call]
        self._depth += 1
        self._read += 1
        if self._depth > MAX_DEPTH:
            _refuse(event, f"nested more than {MAX_DEPTH} levels deep")
        if self._read > MAX_VALUES:
            _refuse(event, f"more than {MAX_VALUES:,} values")
        node = super().compose_node(parent, index)
        if node is not None:
            self._check_size(event, node)
        self._depth -= 1
        return node

    def _check_size(self, event: yaml.Event, node: yaml.Node) -> None:
        if not isinstance(event, yaml.AliasEvent):
            self._measured[node] = self._measure(node)
        if node not in self._measured:
            _refuse(event, "an alias is inside what it names")
        values, levels = self._measured[node]
        if values > MAX_VALUES:
            _refuse(event, f"aliases make it larger than {MAX_VALUES:,} values")
        if self._depth + levels - 1 > MAX_DEPTH:
            _refuse(event, f"aliases make it more than {MAX_DEPTH} levels deep")

    def _measure(self, node: yaml.Node) -> tuple[int, int]:
        inside: list[yaml.Node] = node.value if isinstance(node, yaml.SequenceNode) else []
        if isinstance(node, yaml.MappingNode):
            inside = [part for pair in node.value for part in pair]
        sizes = [self._measured[one] for one in inside]
        return 1 + sum(size[0] for size in sizes), 1 + max((size[1] for size in sizes), default=0)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Convert a node to a Python value."""
        if node.tag not in _TAGS:
            kind = node.tag.removeprefix(_TAG)
            _refuse(node, f"the tag {shortened(kind, 60)!r} is not allowed; write a plain value")
        try:
            value = super().construct_object(node, deep)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            if "digits" in str(error):
                _refuse(node, _TOO_LARGE)
            kind, text = node.tag.removeprefix(_TAG), shortened(str(node.value), 60)
            _refuse(node, f"{text!r} is not a value of the type {kind}")
        if isinstance(value, int) and abs(value) > MAX_INTEGER:
            _refuse(node, _TOO_LARGE)
        if isinstance(value, str) and (found := self.NON_PRINTABLE.search(value)):
            _refuse(node, f"the character {found.group()!r} is not allowed, nor is its escape")
        return value


def _refuse(place: Any, problem: str) -> NoReturn:
    raise yaml.MarkedYAMLError(problem=problem, problem_mark=place.start_mark)


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[str] = set()
    for key_node, _ in node.value:
        if not isinstance(key_node, yaml.ScalarNode):
            _refuse(key_node, "a key is not a plain string")
        if key_node.tag != f"{_TAG}merge" and key_node.value in seen:
            _refuse(key_node, f"key {shortened(key_node.value, 60)!r} occurs twice")
        seen.add(key_node.value)
    loader.flatten_mapping(node)
    return dict(loader.construct_pairs(node))


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)
# Dates stay strings, because JSON has no dates.
_Loader.yaml_implicit_resolvers = {
    first: [pair for pair in pairs if pair[0] != f"{_TAG}timestamp"]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
# YAML 1.1 reads 1e-6 as a string, but in a recipe it means the number. An exponent without a sign
# stays a string: 12e4567 may be a commit.
_Loader.add_implicit_resolver(
    f"{_TAG}float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]\d+$"), list("-+0123456789")
)


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML file whose content is one mapping; a key that occurs twice is an error.

    Raises:
        InputError: The file cannot be read, is beyond the limits, is not such a mapping, or repeats
            a key.
    """
    try:
        value = parse(read_text(path))
    except ValueError as error:
        raise InputError(f"{path}: {error}.") from error
    if not isinstance(value, dict):
        kind = "nothing" if value is None else type(value).__name__
        raise InputError(f"{path}: must be a mapping of keys to values, got {kind}.")
    return value


def read_text(path: Path) -> str:
    """The text of a small file that a person wrote.

    A pipe or a device is not read: it may never answer, or never end.

    Raises:
        ValueError: The path is not a file, it cannot be read, or it is too large or not UTF-8.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ValueError("not a file")
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as handle:
            data = handle.read(MAX_BYTES + 1)
    except OSError as error:
        raise ValueError(f"cannot be read ({error.strerror})") from error
    if len(data) > MAX_BYTES:
        raise ValueError(f"larger than {MAX_BYTES:,} bytes, the limit for such a file")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 ({error}); save it as UTF-8") from error


def parse(text: str) -> Any:
    """Parse YAML: a file's content, or the value of a ``key=value`` override.

    Raises:
        ValueError: The text is not YAML, is beyond the limits, or has a value that is not plain.
    """
    if len(text) > MAX_BYTES:
        raise ValueError(f"too large ({len(text):,} characters, the limit is {MAX_BYTES:,})")
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.reader.ReaderError as error:
        line = 1 + text.count("\n", 0, error.position)
        character = f"the character {chr(error.character)!r} is not allowed; save it as UTF-8"
        raise ValueError(f"not valid YAML: {character} (line {line})") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        problem = ", ".join(part for part in (error.context, error.problem) if part)
        raise ValueError(f"not valid YAML: {shortened(problem, 300)}{place}") from error
