"""Rows of the DeepCoder-Preview set: primeintellect, taco, lcbv5 and codeforces.

A record, as a Parquet row:

    problem       "Print twice the number …"
    tests         '{"inputs": ["3\\n"], "outputs": ["6\\n"]}', with "fn_name" for a function; or
                  '[{"input": "3\\n", "output": "6\\n", "type": "stdin_stdout"}]'
    solutions     ["```python\\nprint(2 * int(input()))\\n```"]
    starter_code  "class Solution:\\n    def …"            lcbv5 only
    metadata      '{"func_name": "double"}'               lcbv5 only

Source: agentica-org/DeepCoder-Preview-Dataset, as rllm's prepare_deepcoder_data reads it.
"""

from __future__ import annotations

from typing import Any

from pcl_reasoner.formats.checks import code_checks
from pcl_reasoner.formats.given_tests import parsed, problem_tests
from pcl_reasoner.formats.records import Malformed, ReadLimits, Row, others_of, row_of, text_of
from pcl_reasoner.formats.texts import first_code, with_starter

COLUMNS = {"problem": "string", "tests": "string, JSON"}
"""Column that every file has -> its type."""

_USED = frozenset({"problem", "tests", "solutions", "starter_code"})


def read(record: dict[str, Any], limits: ReadLimits) -> Row:
    """Read one record.

    Args:
        record: All columns.
        limits: The number of tests that are kept, and their largest size.

    Raises:
        Malformed: The record is malformed.
    """
    name = function_name(record.get("metadata"), limits)
    tests = problem_tests(parsed(record.get("tests"), limits), name)
    checks = code_checks(tests, limits, first_code(record.get("solutions")))
    problem = with_starter(record.get("problem"), record.get("starter_code"))
    source = text_of(record.get("data_source"))
    return row_of(problem, None, "", source, others_of(record, _USED), "code", checks)


def function_name(metadata: Any, limits: ReadLimits) -> str:
    """Return ``func_name`` of metadata, an object or its JSON; "" if they have none."""
    try:
        found = parsed(metadata, limits)
    except Malformed:
        return ""
    return str(found.get("func_name") or "") if isinstance(found, dict) else ""
