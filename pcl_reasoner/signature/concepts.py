"""Finds the concepts of a text: things of mathematics that have one name in every language.

    text        "What is the area of the triangle?"    "三角形的面积是多少"    "area(triangle)"
    concepts    :area  :triangle                       :area  :triangle      :area  :triangle

``concepts.txt`` lists the words; a few phrases and signs are below. A word that is in no list is
left out: names and stories change in a rewrite.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache, lru_cache
from importlib.resources import files

MARK = ":"
"""Begins the name of a concept, so that it differs from a formula."""

_ENGLISH_WORD = re.compile(r"[a-z]+")
_NAME = re.compile(r"[A-Za-z]\w*")
_SUFFIXES = (
    *(("ies", "y"), ("ves", "f"), ("es", ""), ("s", ""), ("ed", ""), ("ed", "e")),
    *(("ing", ""), ("ing", "e"), ("ly", ""), ("ly", "le"), ("er", "")),
)
_DOUBLED = re.compile(r"(.*?)(.)\2(?:ed|ing)")
_PHRASES = tuple(
    (re.compile(pattern), concept)
    for concept, pattern in (
        ("gcd", r"(?:greatest|largest|highest) common (?:divisor|factor|measure)|relatively prime"),
        ("lcm", r"(?:least|lowest|smallest) common multiple"),
        ("consecutive", r"\bnext to\b|\bin a row\b|\bside by side\b"),
        (
            "atleast",
            r"\bat least\b|\bor more\b|\bno (?:fewer|less) than\b|≥|\\geq?\b|至少|不少于|不小于",
        ),
        (
            "atmost",
            r"\bat most\b|\bno more than\b|\bnot (?:greater|more|exceed)|≤|\\leq?\b"
            r"|至多|不超过|不大于",
        ),
        ("cube", r"\bthird powers?\b|\^\{?3\b|³|\*\* ?3\b"),
        ("square", r"\bsecond powers?\b|\^\{?2\b|²|\*\* ?2\b"),
        ("maximum", r"\bhow (?:large|great|big)\b"),
        ("minimum", r"\bhow small\b"),
        ("squareroot", r"√"),
        ("absolute", r"\|[^|\n]{1,20}\|"),
        ("remainder", r"% ?[\w(]"),
        ("divisible", r"% ?[\w(]+\)* ?=="),
        ("factorial", r"[\w)]!(?!=)"),
        ("choose", r"\\d?binom|\bc\(\d"),
        ("degree", r"°|\\circ\b"),
        ("right", r"\bright (?:angle|triangle)|\bright-angled\b"),
    )
)


@cache
def _lists() -> tuple[dict[str, set[str]], dict[str, set[str]], dict[str, set[str]]]:
    """English words, Chinese words and names in programs, each with its concepts."""
    tables: tuple[dict[str, set[str]], ...] = tuple(defaultdict(set) for _ in range(3))
    text = files("pcl_reasoner.signature").joinpath("concepts.txt").read_text(encoding="utf-8")
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        concept, *columns = (part.split() for part in line.split("|"))
        for table, words in zip(tables, columns, strict=False):
            for word in words:
                table[word].add(concept[0])
    english, chinese, names = map(dict, tables)
    return english, chinese, names


@cache
def _chinese() -> re.Pattern[str]:
    """Any Chinese word of the list, the longest first."""
    words = sorted(_lists()[1], key=lambda word: (-len(word), word))
    return re.compile("|".join(map(re.escape, words)))


def concepts_of(text: str) -> set[str]:
    """The concepts of a text.

    Args:
        text: A problem, a response or a program.
    """
    _, chinese, names = _lists()
    lower = text.casefold()
    found: set[str] = set()
    for word in set(_ENGLISH_WORD.findall(lower)):
        found |= _of_english(word)
    if not text.isascii():
        for word in set(_chinese().findall(text)):
            found |= chinese[word]
    for name in set(_NAME.findall(text)):
        for part in (name, *name.split("_")):
            found |= names.get(part, set())
    found |= {concept for pattern, concept in _PHRASES if pattern.search(lower)}
    return {MARK + concept for concept in found}


@lru_cache(maxsize=100_000)
def _of_english(word: str) -> frozenset[str]:
    english = _lists()[0]
    return next((frozenset(english[form]) for form in _forms(word) if form in english), frozenset())


def _forms(word: str) -> Iterator[str]:
    """The word, then what it may be derived from: rolled -> rolle, roll, rolling -> roll …"""
    yield word
    for suffix, ending in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= 3:
            yield word[: len(word) - len(suffix)] + ending
    doubled = _DOUBLED.fullmatch(word)
    if doubled:
        yield doubled[1] + doubled[2]
