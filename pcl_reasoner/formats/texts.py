"""Texts that several readers make: a problem with its starter code, a solution without its fence.

"Add two numbers." and "def add(a, b):"  ->

Add two numbers.

Start from this code:

```python
def add(a, b):
```
"""

import ast
import re
import warnings
from typing import Any

CODE_BYTES = 1 << 22
"""Largest text that is read as Python. A syntax tree is about a hundred times as large."""
_FENCED = re.compile(r"```[^\n`]*\n(.*?)\n?```", re.DOTALL)
_SECONDS = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(?:s|secs?|seconds?)\b", re.IGNORECASE)
_MEGABYTES = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(?:mb|mib|megabytes?)\b", re.IGNORECASE)


def with_starter(problem: Any, starter: Any) -> Any:
    """Return a problem with its starter code, which tells the function's name.

    Args:
        problem: The problem; if it is blank or no text, it is returned as it is: row_of refuses it.
        starter: Starter code or a function's declaration. Null, blank, or in the problem: nothing
            is added.
    """
    if not isinstance(problem, str) or not isinstance(starter, str):
        return problem
    code = starter.strip()
    if not problem.strip() or not code or code in problem:
        return problem
    return f"{problem.rstrip()}\n\nStart from this code:\n\n```python\n{starter.rstrip()}\n```"


def code_in(text: Any) -> str:
    """Return the last fenced block of a text; the whole text if it has none; "" for null."""
    if not isinstance(text, str) or not text.strip():
        return ""
    blocks = _FENCED.findall(text)
    return blocks[-1] if blocks else text


def first_code(solutions: Any) -> str:
    """Return the first solution in Python 3 without its fence; "" if there is none.

    APPS and TACO also have solutions in Python 2, which say nothing about the tests.

    Args:
        solutions: A text, or a list of texts.
    """
    given = solutions if isinstance(solutions, list) else [solutions]
    return next((code for code in map(code_in, given) if code and _is_python(code)), "")


def _is_python(code: str) -> bool:
    if "\0" in code:
        return True  # code_checks refuses it, with a reason of its own
    if len(code) > CODE_BYTES:
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def seconds_of(limit: Any) -> float | None:
    """Return a time limit, a number or e.g. "2.0 seconds"; None if it has another unit or none."""
    return _limit(limit, _SECONDS)


def megabytes_of(limit: Any) -> int | None:
    """Return a memory limit, a number or e.g. "256 megabytes"; None if it has another unit."""
    found = _limit(limit, _MEGABYTES)
    return None if found is None else max(1, int(found))


def _limit(limit: Any, form: re.Pattern[str]) -> float | None:
    if isinstance(limit, str):
        match = form.match(limit)
        limit = float(match[1]) if match else None
    if not isinstance(limit, int | float) or isinstance(limit, bool):
        return None
    return float(limit) if 0 < limit < float("inf") else None
