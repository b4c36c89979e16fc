"""How often numbers and formulas occur in problems that are in no benchmark of the package.

    {"problems": 6299, "terms_per_problem": 4.4, "concepts_per_problem": 3.6,
     "counts": {"2": 3368, "1/2": 163, ":area": 120}}

benchmarks/signature_background.py counted them. A term below MIN_COUNT is not in the file.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

MIN_COUNT = 3
"""A term in fewer problems counts as one that no problem has."""
YEAR = re.compile(r"(?:19[89]|20[0-3])\d")
YEAR_SHARE = 0.02
"""Share of problems with a given year of 1980 to 2039, at least: contests put their year in."""


@dataclass(frozen=True)
class Background:
    """Counts of terms.

    Args:
        problems: Number of problems that were counted.
        terms_per_problem: Mean number of numbers and formulas of a problem.
        concepts_per_problem: Mean number of concepts of a problem.
        counts: Term -> number of problems that have it.
    """

    problems: int
    terms_per_problem: float
    concepts_per_problem: float
    counts: Mapping[str, int]

    def count(self, term: str) -> int:
        """Number of problems that have a term."""
        found = self.counts.get(term, 0)
        return max(found, round(YEAR_SHARE * self.problems)) if YEAR.fullmatch(term) else found


@cache
def background() -> Background:
    """The counts in the package."""
    text = files("pcl_reasoner.signature").joinpath("background.json").read_text(encoding="utf-8")
    return Background(**json.loads(text))
