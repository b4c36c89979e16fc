"""The program in a sandbox, as one text: the files of this folder one after the other.

The files are no modules there: the interpreter in the sandbox sees neither this package nor any
other, and may be older. The parts that a kind of test does not need are left out, because the text
is compiled at every start.
"""

from functools import cache
from importlib.resources import files

_FIRST_PROCESS = ("messages", "pipes", "processes", "child_run", "init", "child")
_CALLS = ("values", "calls", "solution")
_TESTS = ("pytest_functions", "tester")
PARTS = {
    "program": _FIRST_PROCESS,
    "calls": (*_CALLS, *_FIRST_PROCESS),
    "tester": (*_CALLS, *_TESTS, *_FIRST_PROCESS),
    "once": ("messages", *_CALLS, *_TESTS, "once"),
}
"""What runs in a sandbox -> its files."""
STARTS = {"once": "run_once()"}
"""What runs in a sandbox -> the call that starts it, where it is not ``main()``."""
_FUTURE = "from __future__ import annotations\n"


@cache
def source_of(kind: str, first: tuple[str, ...] = ()) -> str:
    """Return the text for ``python -c``.

    Args:
        kind: One of PARTS.
        first: Files that come before, and begin what runs.
    """
    texts = [_FUTURE]
    for part in (*first, *PARTS[kind]):
        text = files(__package__).joinpath(f"{part}.py").read_text(encoding="utf-8")
        text = text.replace(_FUTURE, "", 1)
        texts.append(text.partition('"""\n')[2])  # without the docstring of the file
    return "".join(texts) + ("\nenter()\n" if first else "") + f"\n{STARTS.get(kind, 'main()')}\n"
