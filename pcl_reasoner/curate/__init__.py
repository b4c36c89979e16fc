"""Third-party Parquet and JSONL -> problems, by the stages convert, difficulty, lengths, unique.

Rows are streamed: Arrow batches carry the long columns in source order, part by part, on this
machine or on others (the data engine). DuckDB has a memory limit, spills to disk beyond it, and
reads only the short columns of all parts. Its results for a part are matched with the part's rows,
so no stage sorts the texts or holds all of them in memory.
"""

import hashlib
import unicodedata

WHITESPACE = " \t\n\r\f\v"
"""Characters stripped from both ends of a problem; only ASCII, so that SQL and Python agree."""


def normalise_problem(problem: str) -> str:
    """Normalise to NFC and strip; problems that are equal in this form are the same problem."""
    return unicodedata.normalize("NFC", problem).strip(WHITESPACE)


def problem_id(problem: str) -> str:
    """Return the first 16 hex digits of the SHA-256 of the normalised problem.

    Source: upstream's decontaminate.py takes the same digits of the raw question's hash.
    """
    text = normalise_problem(problem).encode("utf-8", "surrogatepass")
    return hashlib.sha256(text).hexdigest()[:16]
