"""No phrase of a private dialect in documents, docstrings, comments, names of tests or messages.

A phrase is added here when a reader stumbles over it.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
COUNTED = (
    "responses|samples|rows|tokens|segments|steps|problems|bytes|seconds|lines|workers|devices|ranks|"
    "hosts|texts|records|figures|tasks|hours|columns|values|tests|files|questions|ms|GB|GiB|MB|points"
)
UNITS = (
    "step|rank|epoch|second|problem|token|row|host|device|segment|response|line|file|batch|layer|"
    "stage|question|node|chunk|page|part|process|benchmark|server|day|room|run|sample|text|record"
)
PHRASES = {
    rf"\b(one|once|{COUNTED}) an? ({UNITS})\b": "per",
    r"(?<!each )\bof which\b": "a sentence of its own",
    r"\bin which case\b": "then",
    r"\bwhat of\b|\bnothing of it\b|\bhow much of\b": "the thing itself",
    r"\b(goes|go|went|gone|going) on\b": "continue, resume",
    r"\bkept apart\b": "quarantined",
    r"\b(is|are|was|were|be) told\b": "reported, given",
    r"\bheld against\b": "compared with, checked against",
    r"\b(comes|come|stands|stand) (over|above)\b": "overrides",
    r"\bmend(s|ed|ing)?\b": "fix, correct",
    r"\banew\b": "again",
    r"\bwhoever\b|\bwhence\b|\bhereof\b|\bthereof\b|\btherein\b": "a noun",
    r"\bis no part of\b": "is not part of",
    r"\b(server|command|process)'s words\b": "output",
    r"\bstands (twice|once)\b": "occurs twice",
    r"\b(at|by) hand of\b": "with",
    r"\bso many\b": "the number",
    r"\bthe like\b": "similar",
}
FILES = [
    path
    for pattern in (
        "*.md",
        "docs/**/*.md",
        "pcl_reasoner/**/*.py",
        "handlers/*.py",
        "recipes/**/*.yaml",
        "launch/*",
    )
    for path in sorted(ROOT.glob(pattern))
    if path.is_file() and path.name != "CHANGELOG.md" and "pcl_reasoner/handlers" not in str(path)
]


def found(text: str) -> list[str]:
    """The lines of a text that hold a phrase, with what to write in place of it."""
    joined = re.sub(r"\s*\n\s*#?\s*", " ", text)
    hits = []
    for phrase, better in PHRASES.items():
        for match in re.finditer(phrase, joined, re.I):
            around = joined[max(0, match.start() - 40) : match.end() + 20]
            hits.append(f"{match[0]!r} in {around!r}: {better}")
    return hits


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_phrase_of_the_list(path: Path) -> None:
    assert found(path.read_text(encoding="utf-8")) == []


def test_the_list_finds_what_it_bans() -> None:
    assert [
        hit.split(" in ")[0] for hit in found("8 samples a\n    problem, of which two go on")
    ] == [
        "'samples a problem'",
        "'of which'",
        "'go on'",
    ]
    assert found("8 samples per problem; two continue") == []
