"""Disguises a question by rules, to measure whether an embedder still recognises it.

    question              "Let $x>0$. Find $x$ if $x^2=\\frac{9}{4}$."
    last sentence first   "Find $x$ if $x^2=\\frac{9}{4}$. Let $x>0$."
    other LaTeX           "Let \\(x>0\\). Find \\(x\\) if \\(x^2=\\dfrac{9}{4}\\)."

No rule translates. Rewrites by hand, e.g. translations, are given to the command as a file.
"""

import re
import textwrap
from collections.abc import Callable

from pcl_reasoner.contamination.fingerprints import halves_of

WIDTH = 30
"""Characters per line of a question with another line width."""
LEFT_OUT = 5
"""Every word with this number is left out."""
BEFORE = (
    "The town library opens at nine, and on the first floor a reading group meets once in a while. "
    "Today its oldest member brought a folder of handwritten sheets. One of them says: "
)
AFTER = (
    " The others passed the sheet around, made tea, and argued until the caretaker came with the "
    "keys. Nobody could say who had written it, or when."
)


def last_sentence_first(text: str) -> str:
    """The same sentences, the last one first."""
    sentences = re.split(r"(?<=[.?!。？！])\s*(?=\S)", text)
    return " ".join(sentences[-1:] + sentences[:-1])


def other_latex(text: str) -> str:
    """The same formulas in other LaTeX."""
    text = re.sub(r"\$([^$]+)\$", r"\\(\1\\)", text)
    return text.replace(r"\frac", r"\dfrac").replace(r"\le ", r"\leq ")


def other_line_width(text: str) -> str:
    """The same words in short lines."""
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def words_left_out(text: str) -> str:
    """The text without every fifth word."""
    words = text.split(" ")
    return " ".join(word for place, word in enumerate(words, 1) if place % LEFT_OUT)


DISGUISES: dict[str, Callable[[str], str]] = {
    "last sentence first": last_sentence_first,
    "other LaTeX": other_latex,
    "other line width": other_line_width,
    "every fifth word left out": words_left_out,
    "inside another text": lambda text: BEFORE + text + AFTER,
    "first half": lambda text: halves_of(text)[0],
    "second half": lambda text: halves_of(text)[1],
}
"""Name -> rule."""
