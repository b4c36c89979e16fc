"""Filters for problems that refer to other material (a URL or an image) or have no answer.

A sample: ``"See https://example.org/p7.png. What is the shaded area?"`` has a URL, and ``"In the
figure below, what is the shaded area?"`` refers to an image.

Source: AM-Thinking-v1, arXiv 2505.08311: queries with URLs or referring to images are removed.
"""

import re
from collections.abc import Collection
from typing import Literal

Filter = Literal["url", "image", "no_answer"]
"""``no_answer``: the ground truth is blank. A blank problem needs no filter: it is malformed."""

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


def filtered(problem: str, ground_truth: str, filters: Collection[Filter]) -> str | None:
    """Return the filter that drops a row, or None.

    Args:
        problem: The problem.
        ground_truth: Its answer.
        filters: The active filters; they are checked in the order url, image, no_answer.
    """
    if "url" in filters and URL.search(problem):
        return "url"
    if "image" in filters and IMAGE.search(problem):
        return "image"
    if "no_answer" in filters and not ground_truth.strip():
        return "no_answer"
    return None
