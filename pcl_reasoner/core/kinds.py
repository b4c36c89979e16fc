"""The kinds of problems."""

from typing import Literal, get_args

Kind = Literal["math", "code", "instruction", "chat", "science"]
"""``math``, ``science``: an answer that is compared. ``code``: a program that is tested.
``instruction``: a text that follows instructions. ``chat``: a text that nothing can verify."""
KINDS: tuple[Kind, ...] = get_args(Kind)
Suffix = str | dict[Kind, str]
"""A text after the problem: one for all problems, or one for each kind that has one."""


def suffix_of(suffix: Suffix, kind: str | None) -> str:
    """Return the text after a problem of a kind; no kind means ``math``."""
    return suffix if isinstance(suffix, str) else suffix.get(kind or "math", "")  # type: ignore[call-overload]
