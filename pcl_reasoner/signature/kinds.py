"""Tells kinds of texts apart, and finds the sentences of a question that ask for something.

"What is 2 + 3?"    question      "2 + 3 is 5."    solution
"print(2 + 3)"      program       "2 + 3 是多少"    other_script
"""

import re

OTHER_LETTERS = 0.15
"""Share of letters of another script that a text in Latin script may have."""

KINDS = ("question", "solution", "program", "other_script")
_PROGRAM = re.compile(
    r"^\s*(?:def|class) \w+.*:\s*$|^\s*(?:from [\w.]+ )?import \w|^\s*for \w+(?:, ?\w+)* in .*:"
    r"|\bprint\(|\bcout\s*<<|#include\s*<|\breturn\b.*;|\bconsole\.log\(|\bSystem\.out\.",
    re.M,
)
_ASKS = re.compile(
    r"\?|(?:^|[.;:!\n]\s*|[,;]\s+(?=find|determine|compute|how|what)|\b(?:and|then|please)\s+)"
    r"(?:find|determine|compute|calculate|evaluate|how|what|which(?= is| are)|prove|show|solve|"
    r"count|give|write|express|simplify|sum up|add|multiply)\b",
    re.I,
)
_SENTENCE_END = re.compile(r"(?<=[.?!;])\s+|(?<=[。？！；])|\n")
_ASKS_CHINESE = re.compile("求|多少|几|计算|是否|证明|什么")


_ANSWER_FORM = re.compile(
    r"(?:,? (?:which|that) )?(?:can be |is |be )?(?:written|expressed) (?:as|in the form)\b"
    r"|\bin (?:its |the )?lowest terms\b|\bas an? (?:reduced|irreducible|common) fraction\b"
    r"|\breduced fraction\b|\bwhere \$?[a-z]\$?(?: and|,) [^.;]*?(?:relatively prime|coprime)[^.;]*"
    r"|\b(?:find|give|determine|compute|report|what is) (?:the value of )?"
    r"\$?[mpnqab] ?\+ ?[mpnqab]\$?(?![\w^*+=])",
    re.I,
)


def without_answer_form(text: str) -> str:
    """The text without the form of its answer: "m/n in lowest terms. Find m + n".

    Many questions of all topics ask in this form, so it says nothing about the question.

    Args:
        text: A question.
    """
    return _ANSWER_FORM.sub(" ", text)


def kind_of(text: str) -> str:
    """The kind of a text: a member of ``KINDS``.

    Args:
        text: A text, without its chat template.
    """
    if _PROGRAM.search(text):
        return "program"
    if not in_latin_script(text):
        return "other_script"
    return "question" if _ASKS.search(text) else "solution"


def asking_part(text: str) -> str:
    """The sentences that ask for something; the whole text if there are none.

    Args:
        text: A question in English or Chinese.
    """
    sentences = [part for part in _SENTENCE_END.split(text) if part.strip()]
    asking = [part for part in sentences if _ASKS.search(part) or _ASKS_CHINESE.search(part)]
    return " ".join(asking) if asking else text


def in_latin_script(text: str) -> bool:
    """True if the letters of a text are Latin or Greek, as in English, formulas and programs.

    A question in another script may have many Latin letters in its formulas.

    Args:
        text: Any text.
    """
    if text.isascii():
        return True
    letters = [character for character in text if character.isalpha()]
    # Latin and Greek, with their extended blocks, end before Cyrillic.
    return sum(character >= "\u0400" for character in letters) <= OTHER_LETTERS * len(letters)
