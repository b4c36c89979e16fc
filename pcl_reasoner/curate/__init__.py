"""Parquet and JSONL of other people -> problems: convert, difficulty, lengths, unique."""

from __future__ import annotations

import hashlib
import unicodedata

WHITESPACE = " \t\n\r\f\v"
"""What is stripped from a problem's ends: ASCII only, so that SQL and Python agree."""


def normalise_problem(problem: str) -> str:
    """NFC and stripped: the form in which two problems are the same problem."""
    return unicodedata.normalize("NFC", problem).strip(WHITESPACE)


def problem_id(problem: str) -> str:
    """First 16 hex digits of SHA-256 of the normalised problem.

    Source: upstream's decontaminate.py takes the same digits of the raw question.
    """
    text = normalise_problem(problem).encode("utf-8", "surrogatepass")
    return hashlib.sha256(text).hexdigest()[:16]
