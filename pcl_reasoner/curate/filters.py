"""Filters for problems that refer to other material, are not plain text, or have no answer.

A sample: ``"See https://example.org/p7.png. What is the shaded area?"`` has a URL, and ``"In the
figure below, what is the shaded area?"`` refers to an image.

Sources: AM-Thinking-v1, arXiv 2505.08311: queries with URLs or referring to images are removed.
arXiv 2505.14464, by the same team: tables and a high share of Unicode characters, too. How a table
and the share are defined is ours.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Collection
from typing import Literal

Filter = Literal["url", "image", "table", "non_letters", "no_answer"]
"""``no_answer``: a response cannot be checked: there is no ground truth, there are no checks, and
the problem is no chat. A blank problem needs no filter: it is malformed."""
MAX_NON_LETTERS = 0.3
"""Largest share of non-letters, by our choice: the source gives no number."""

URL = re.compile(r"\b(?:https?|ftp)://\S|\bwww\.\w[\w-]*\.\w", re.IGNORECASE)
# A word for a picture counts only if the text points at one ("the figure below", "in Figure 3"):
# other texts mention the image of a map, a three-figure number or a figure skater.
IMAGE = re.compile(
    r"!\[[^\]]*\]\("  # an image in Markdown
    r"|<img\b|\\includegraphics\b|\[asy\]|\w\.(?:png|jpe?g|gif|svg|webp)\b"
    r"|\b(?:in|see|from) the (?:picture|diagram|photo|photograph|drawing|illustration)s?\b"
    r"|\b(?:in|see) the figure\b(?! of\b| skat)"
    r"|\b(?:in|see) (?:figure|fig\.) ?\d"
    r"|\b(?:following|adjoining|accompanying|attached) "
    r"(?:picture|image|figure|diagram|graph|photo|drawing|illustration)s?\b"
    r"|\b(?:picture|image|figure|diagram|graph|photo|drawing|illustration)s? (?:is |are )?"
    r"(?:(?:shown |given |drawn |pictured )?(?:below|above)|on the (?:left|right))\b"
    r"|\b(?:shown|seen|pictured) in the (?:image|graph)\b",
    re.IGNORECASE,
)


_CELLS = re.compile(
    r"^[ \t]*(?:\|[ \t]*)?:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)+(?:\|[ \t]*)?\r?$", re.MULTILINE
)
"""The second line of a table in Markdown: at least two cells of hyphens."""
_TABLE = re.compile(
    r"<table\b|\\begin\{(?:tabular|tabularx|tabulary|longtable|table)\*?\}", re.IGNORECASE
)
_ORDINARY = ("L", "M", "N", "Z", "Sm")
"""Categories of Unicode: letters, marks that belong to letters, numbers, blanks, and symbols of
mathematics."""


def has_table(text: str) -> bool:
    """True if a text has a table in Markdown, HTML or LaTeX.

    In Markdown, the line above the cells of hyphens must have a bar. A LaTeX array counts if it has
    a rule (hline): matrices and equations are arrays without one.
    """
    if _TABLE.search(text):
        return True
    arrays = text.split("\\begin{array}")[1:]
    if any("\\hline" in array.split("\\end{array}")[0] for array in arrays):
        return True
    for cells in _CELLS.finditer(text):
        above = text.rfind("\n", 0, max(cells.start() - 1, 0)) + 1
        if "|" in text[above : cells.start()]:
            return True
    return False


def non_letters(text: str) -> float:
    """Return the share of a text's characters that are neither letters nor ordinary in a problem.

    Ordinary are letters, digits, combining marks and blanks of all scripts, ASCII punctuation,
    ASCII white space and mathematical symbols. The others are emoji, box drawing, control and
    private characters, and punctuation outside ASCII. A Chinese or Russian text consists of
    letters; its commas are about a tenth of it.
    """
    counts = Counter(text)
    others = sum(count for char, count in counts.items() if not _is_ordinary(char))
    return others / max(len(text), 1)


def _is_ordinary(char: str) -> bool:
    if char.isascii():
        return char.isprintable() or char.isspace()
    category = unicodedata.category(char)
    return category[0] in _ORDINARY or category in _ORDINARY


def filtered(
    problem: str,
    answer: str,
    filters: Collection[Filter],
    max_non_letters: float = MAX_NON_LETTERS,
) -> str | None:
    """Return the filter that drops a row, or None.

    Args:
        problem: The problem.
        answer: The ground truth or the checks; blank if there is neither.
        filters: The active filters; they are checked in the order url, image, table, non_letters,
            no_answer.
        max_non_letters: Largest share of non-letters with which a problem is kept.
    """
    if "url" in filters and URL.search(problem):
        return "url"
    if "image" in filters and IMAGE.search(problem):
        return "image"
    if "table" in filters and has_table(problem):
        return "table"
    if "non_letters" in filters and non_letters(problem) > max_non_letters:
        return "non_letters"
    if "no_answer" in filters and not answer.strip():
        return "no_answer"
    return None
