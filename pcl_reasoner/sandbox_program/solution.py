"""Loads the candidate's code as the module ``solution``."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MODULE = "solution"
"""Name under which tests import the candidate's code."""
COMMON = {
    "typing": "Any Callable Deque DefaultDict Dict Generator Iterable Iterator List Optional Set"
    " Tuple Union",
    "collections": "Counter OrderedDict defaultdict deque",
    "functools": "cache cmp_to_key lru_cache reduce",
    "itertools": "accumulate chain combinations count groupby permutations product zip_longest",
    "heapq": "heapify heappop heappush heappushpop heapreplace nlargest nsmallest",
    "bisect": "bisect bisect_left bisect_right insort",
    "math": "ceil comb factorial floor gcd inf isqrt lcm log2 pi sqrt",
    "": "bisect collections copy datetime functools heapq itertools json math operator random re"
    " string sys typing",
}
"""Module -> names that a solution may use without importing them; "": modules."""


def load_solution(text: str, code: Any = None) -> Any:
    """Execute the candidate's code as a module; return the module.

    Args:
        text: The code.
        code: The same, compiled; None if it is not compiled yet.
    """
    module = type(sys)(MODULE)
    sys.modules[MODULE] = module
    _import_common_names(text, vars(module))
    exec(code or compile(text, "solution.py", "exec"), vars(module))
    return module


def _import_common_names(code: str, namespace: dict[str, Any]) -> None:
    """Import the common names that the code uses, e.g. List; a solution often leaves that out."""
    used = set("".join(sign if sign.isalnum() else " " for sign in code).split())
    for module, names in COMMON.items():
        for name in used.intersection(names.split()):
            found = __import__(module or name)
            namespace[name] = getattr(found, name) if module else found
