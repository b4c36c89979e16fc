"""Grades a response with a program: its last code block, against the tests of its problem.

    response  "<think>…</think>Here it is:\\n```python\\ndef double(x):\\n    return 2 * x\\n```"
    program   "def double(x):\\n    return 2 * x\\n"

Only the text after ``</think>`` counts, and in it the last block that is closed. Its tag must be
empty or name the language of the tests; a block of another language is no answer, even if a block
before it is one. As in CommonMark, the indentation of the opening fence, e.g. of a block in a list,
is not part of the program:

    "1. Double it:\n   ```python\n   def double(x):\n       return 2 * x\n   ```"
"""

from __future__ import annotations

import re

TAGS = {
    "python": frozenset({"", "python", "python3", "py", "py3"}),
    "cpp": frozenset({"", "cpp", "c++", "cc", "cxx"}),
}
"""Language -> tags of a block that has it."""

_OPENING = re.compile(r"([ \t]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)*)(`{3,}|~{3,})([^\n]*)")
"""An opening fence, which may follow the marker of a list's item: ``- `` or ``1. ``."""
_CLOSING = re.compile(r"[ \t]*(`{3,}|~{3,})[ \t\r\n]*")
_INDENT = re.compile(r"[ \t]*")
_TAB = 4
"""Columns from one tab stop to the next."""


def program_in(answered: str, language: str) -> str | None:
    """Return the program of a response; None if it has none in this language.

    Args:
        answered: The text after ``</think>``.
        language: ``python`` or ``cpp``.
    """
    tag, code = last_block(answered)
    return code if tag in TAGS[language] and code.strip() else None


def last_block(text: str) -> tuple[str | None, str]:
    """Return tag and content of the last closed code block; None and "" if there is none.

    A block ends with a line of the character that opened it, at least as many, and nothing else.
    """
    fence: str | None = None
    tag, width = "", 0
    last: tuple[str | None, str] = (None, "")
    lines: list[str] = []
    for line in text.splitlines(keepends=True):
        if fence is None:
            match = _OPENING.match(line)
            if match and "`" not in match[3]:
                width, fence = len(match[1].expandtabs(_TAB)), match[2]
                tag, lines = match[3].strip().split(" ")[0].lower(), []
        elif (match := _CLOSING.fullmatch(line)) and match[1].startswith(fence):
            last, fence = (tag, "".join(lines)), None
        else:
            lines.append(_moved_left(line, width))
    return last


def _moved_left(line: str, width: int) -> str:
    """Return a line without its first ``width`` columns, as far as they are blank."""
    if not width:
        return line
    blank = line[: _INDENT.match(line).end()]  # type: ignore[union-attr]
    return blank.expandtabs(_TAB)[width:] + line[len(blank) :]
