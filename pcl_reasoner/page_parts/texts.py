"""Texts of graded responses: long ones are cut, and a verdict's detail is put in words.

A sample detail of a program's verdict, and the words for it::

    {"passed": 2, "total": 5, "weak": 0, "case": 2, "reason": "wrong", "text": "7"}
    {"passed": 2, "total": 5, "test": 3, "reason": "wrong value", "got": "7",
     "case": "{\\"args\\": [3], \\"out\\": 6}", "case_cut": false}
"""

import json
from typing import Any

HEAD, TAIL = 1200, 600
"""Characters shown of a long response: at the beginning, and at the end, with the answer."""
CASE_CHARACTERS = 400
"""Characters shown of a test."""
REASONS = {
    "wrong": ("wrong value", "wrong"),
    "exception": ("exception", "error"),
    "exit": ("exit with an error code", "error"),
    "compile": ("does not compile", "error"),
    "answer": ("no plain value returned", "error"),
    "time": ("time limit", "limit"),
    "memory": ("memory limit", "limit"),
    "output": ("output limit", "limit"),
    "lost": ("killed, e.g. for lack of memory", "limit"),
}
"""Reason of a failed test (sandbox.run.Reason) -> its text, and the CSS class of its colour."""


def cut(text: str | None) -> dict[str, Any]:
    """Return a text's head, its tail and the number of characters left out between them."""
    if text is None or len(text) <= HEAD + TAIL:
        return {"response": text, "tail": "", "left_out": 0}
    return {"response": text[:HEAD], "tail": text[-TAIL:], "left_out": len(text) - HEAD - TAIL}


def reason_text(reason: str) -> str:
    """Return a reason as the page shows it."""
    return REASONS.get(reason, (reason.replace("_", " "), ""))[0]


def why(detail: str | None, checks: str | None) -> dict[str, Any]:
    """Return more about a verdict: the first test that failed, or the instructions not followed.

    Args:
        detail: The column of verdicts.parquet: JSON or None.
        checks: The problem's column: JSON with its tests, "" or None.
    """
    found = json.loads(detail) if detail else {}
    if not isinstance(found, dict) or "case" not in found:
        return found if isinstance(found, dict) else {}
    cases = ((json.loads(checks) if checks else {}).get("tests") or {}).get("cases") or []
    number = found["case"]
    case = cases[number] if number < len(cases) else None
    text = case if isinstance(case, str) else json.dumps(case, ensure_ascii=False)
    return {
        "passed": found["passed"],
        "total": found["total"],
        "test": number + 1,
        "reason": reason_text(found["reason"]),
        "got": found.get("text") or "",
        "case": "" if case is None else text[:CASE_CHARACTERS],
        "case_cut": len(text) > CASE_CHARACTERS,
    }
