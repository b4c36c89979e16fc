"""Splits a text into words and counts its sentences, without a language model or a list of tokens.

    text       "Dr. Lee paid 3.50 euros. Was it much? 不，很少。"
    words      Dr Lee paid 3 50 euros Was it much 不 很 少            12
    sentences  Dr. Lee paid 3.50 euros. | Was it much? | 不，很少。    3

Both run in time proportional to the length of the text, whatever the text is: every pattern here
matches at each place where it starts, so none is tried again from the next character.
"""

from __future__ import annotations

import re

UNSPACED = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
"""Character ranges of Han and kana, which are written without spaces between words."""

# Vowel signs and accents that Python's \w leaves out, and the joiners inside Persian words.
_MARKS = r"\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u0900-\u0963\u0966-\u0dff"
_MARKS += r"\u0e31-\u0e3a\u0e47-\u0e4e\u200c\u200d"
_WORD = re.compile(rf"[{UNSPACED}]|(?:(?![{UNSPACED}])[\w{_MARKS}])+")

_LETTER = re.compile(r"[^\W_]")
_WIDE = "。！？｡．।॥؟۔"
_MARK = re.compile(rf"([.!?…{_WIDE}]+)([\"'”’»)\]」』】）*_]*)")
_NEXT = re.compile(r"\s*(\S?)")
_LIST_NUMBER = re.compile(r"\n[ \t]*\d{1,3}\Z")
_WINDOW = 12
"""Number of characters before a full stop in which its word is looked up."""

_TITLES = "mr mrs ms dr prof st mt vs cf e.g i.e eg ie capt col gen lt sgt rev sen rep hon gov"
_NEVER_LAST = frozenset(_TITLES.split())
_SHORTENED = (
    "etc inc ltd co corp jr sr a.m p.m u.s u.k u.n ph.d no nos fig eq sec vol ch pp approx "
    "dept est jan feb mar apr jun jul aug sept oct nov dec"
)
_SELDOM_LAST = frozenset(_SHORTENED.split())


def words(text: str) -> list[str]:
    r"""Return the words of a text in their order.

    A word is a run of letters, digits and underscores with their accents and vowel signs, so
    ``don't`` and ``3.14`` are two words each. Every Han character and every kana is one word.

    Source: IFEval counts the matches of ``\w+``. That takes a run of Chinese for one word, and
    splits Hindi at its vowel signs; for texts in English both agree.
    """
    return _WORD.findall(text)


def count_sentences(text: str) -> int:
    """Return the number of sentences of a text, 0 for a text without letters and digits.

    A sentence has a letter or a digit, and ends at one of these marks or at the end of the text:

    - ``。！？`` and the marks of Hindi, Arabic and Urdu, whatever follows.
    - ``. ! ? …``, repeated or not, then closing quotes, brackets or asterisks, then white space.

    It does not end

    - at dots (``...`` or ``…``) or after a closing quote or bracket, if a small letter follows;
    - at the full stop of a title or of ``e.g.``, ``i.e.``, ``vs.``;
    - at the full stop of ``etc.``, ``Inc.``, ``p.m.``, ``No.``, ``Fig.``, a month and similar, if
      a small letter or a digit follows;
    - at the full stop of an initial, if a capital letter follows: ``J. Smith``; ``I`` is none;
    - at the full stop of a number of up to three digits that begins a line: ``1. Apples``.

    A line break alone ends no sentence.

    Source: IFEval counts with NLTK's trained model Punkt, which has statistics in place of rules.
    Punkt takes the number of a list item for a sentence of its own; else both mostly agree.
    """
    count = start = 0
    for mark in _MARK.finditer(text):
        if _is_end(text, mark):
            count += _LETTER.search(text, start, mark.start()) is not None
            start = mark.end()
    return count + (_LETTER.search(text, start) is not None)


def _is_end(text: str, mark: re.Match[str]) -> bool:
    dots, closing = mark.groups()
    if dots[-1] in _WIDE:
        return True
    if mark.end() < len(text) and not text[mark.end()].isspace():
        return False
    after = _NEXT.match(text, mark.end())
    following = after[1] if after else ""
    if closing or "…" in dots or ".." in dots:
        return not following.islower()
    return dots != "." or not _is_abbreviation(text, mark.start(), following)


def _is_abbreviation(text: str, stop: int, following: str) -> bool:
    """Whether the full stop at a place belongs to its word and does not end the sentence."""
    before = text[max(0, stop - _WINDOW) : stop]
    if stop <= _WINDOW:
        before = "\n" + before
    if not before or before[-1].isspace():
        return False
    word = before.split()[-1].lstrip("([{\"'“‘«*_")
    if len(word) == 1 and word.isupper() and word != "I":
        return following.isupper()
    if word.lower() in _NEVER_LAST or _LIST_NUMBER.search(before):
        return True
    return word.lower() in _SELDOM_LAST and (following.islower() or following.isdigit())
