"""Rows of open-r1's codeforces and codeforces-cots.

Two records, as Parquet rows; both also have id, contest_id, title, rating, tags …:

    description         "Print twice …"                     the same
    input_format        "One integer."                      the same
    output_format       "One integer."                      the same
    interaction_format  null                                the same: a text if it is interactive
    note, examples      null, [{"input": …, "output": …}]   the same
    time_limit          2.0 (seconds)                       the same
    memory_limit        256.0 (megabytes)                   the same
    official_tests      [{"input": "3\\n", "output": "6\\n"}]  public_tests, private_tests,
    generated_checker   null, or Python source                generated_tests: {"input": ["3\\n"],
    input_mode          "stdio", or file                                       "output": ["6\\n"]}
    executable          true                                prompt      "You will be given …"
    language, prompt    in the parts …-prompts              generation  "<think>…</think>…"

The problem is the prompt, or else the statement's parts. The language is ``language``, or that of
the prompt's last fence, or Python. A prompt of the parts …_w_editorials contains a solution, so
these parts are no queries.

Sources: open-r1/codeforces and open-r1/codeforces-cots.
"""

from __future__ import annotations

import re
from typing import Any

from pcl_reasoner.formats.checks import Tests, code_checks, language_of, stdin_cases
from pcl_reasoner.formats.records import Malformed, ReadLimits, Reason, Row, others_of, row_of
from pcl_reasoner.formats.texts import megabytes_of, seconds_of

COLUMNS = {
    "description": "string",
    "official_tests or public_tests": "list<struct<input, output>>, or struct of two lists",
}
"""Column that every file has -> its type."""

_GROUPS = ("official_tests", "public_tests", "private_tests", "generated_tests")
"""Columns with tests, in the order in which their tests are taken."""
_STATEMENT = ("description", "input_format", "output_format", "interaction_format", "note")
_SOLUTIONS = ("generation", "messages", "accepted_solutions", "failed_solutions", "editorial")
_USED = frozenset(
    {*_GROUPS, *_STATEMENT, *_SOLUTIONS, "public_tests_ms", "generated_checker", "examples"}
    | {"prompt", "api_metadata", "time_limit", "memory_limit"}
)
_FENCE = re.compile(r"```(\w[\w+]*)")


def read(record: dict[str, Any], limits: ReadLimits) -> Row:
    """Read one record.

    Args:
        record: All columns.
        limits: The number of tests that are kept, and their largest size.

    Raises:
        Malformed: The record is malformed, or the problem has no tests of stdin and stdout.
    """
    _check_can_run(record)
    checker = record.get("generated_checker") or ""
    if not isinstance(checker, str):
        raise Malformed(Reason.MALFORMED_TESTS, "generated_checker must be a text")
    problem = record.get("prompt") or _statement(record)
    tests = Tests(
        "stdin",
        [case for name in _GROUPS for case in _cases(record.get(name), name)],
        language=_language(record),
        checker=checker,
        seconds=seconds_of(record.get("time_limit")),
        megabytes=megabytes_of(record.get("memory_limit")),
    )
    checks, extra = code_checks(tests, limits), others_of(record, _USED)
    return row_of(problem, record.get("generation"), "", "codeforces", extra, "code", checks)


def _check_can_run(record: dict[str, Any]) -> None:
    """Refuse what is not tested by an input and an output."""
    mode = record.get("input_mode")
    wrong = {
        "the problem is interactive": bool(record.get("interaction_format")),
        f"input_mode {mode!r}, expected stdio": mode not in (None, "", "stdio"),
        "the source cannot run it": record.get("executable") is False,
    }
    found = [what for what, is_wrong in wrong.items() if is_wrong]
    if found:
        raise Malformed(Reason.UNSUPPORTED_TESTS, "; ".join(found))


def _cases(given: Any, name: str) -> list[dict[str, str]]:
    """Return the tests of one column: a list of tests, or lists of inputs and of outputs."""
    if given is None:
        return []
    if isinstance(given, dict):
        return stdin_cases(given.get("input") or [], given.get("output") or [])
    if not isinstance(given, list) or not all(isinstance(case, dict) for case in given):
        raise Malformed(Reason.MALFORMED_TESTS, f"{name} must be a list of tests")
    return stdin_cases([one.get("input") for one in given], [one.get("output") for one in given])


def _language(record: dict[str, Any]) -> str:
    if record.get("language"):
        return language_of(record["language"])
    prompt = record.get("prompt")
    tags = _FENCE.findall(prompt) if isinstance(prompt, str) else []
    return "cpp" if tags and tags[-1].lower() in ("cpp", "c++") else "python"


def _statement(record: dict[str, Any]) -> Any:
    """Return the parts of a statement as one text; not a text if there is no description."""
    description, examples = record.get("description"), record.get("examples")
    if not isinstance(description, str) or not description.strip():
        return description
    examples = examples if isinstance(examples, list) else []
    shown = "\n\n".join(
        f"Input:\n{one.get('input') or ''}\nOutput:\n{one.get('output') or ''}"
        for one in examples
        if isinstance(one, dict)
    )
    parts = {
        "Input": record.get("input_format"),
        "Output": record.get("output_format"),
        "Examples": shown,
        "Note": record.get("note"),
    }
    texts = [
        f"## {name}\n\n{text.strip()}"
        for name, text in parts.items()
        if isinstance(text, str) and text.strip()
    ]
    return "\n\n".join([description.strip(), *texts])
