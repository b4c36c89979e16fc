r"""AM-Thinking-v1's own queries for reinforcement learning, in the form of verl.

Two records, as Parquet rows of math.parquet and code.parquet:

    data_source   "20250416_amc_aime_website"           "code_source"
    prompt        [{"role": "user", "content": "…"}]    a system turn may come first
    ability       "math"                                "code"
    reward_model  {"ground_truth": "90\\%",             {"ground_truth": '{"call_type": "std", …}',
                   "style": "rule"}                      "style": "rule"}
    extra_info    {"index": 0, "split": "train"}

The ground truth of a code problem is JSON: ``call_type`` std with ``inputs``, ``outputs`` and
perhaps ``fn_name``, or ``call_type`` assert with ``assert_case``, a list of statements or one text.
PRIME's Eurus-2-RL-Data has the same columns, and ``inputs`` and ``outputs`` without ``call_type``.
Without ``call_type``, ``inputs`` count before ``assert_case``, which may then be [""].

Sources: a-m-team/AM-Thinking-v1-RL-Dataset, by the columns that public programs read from it, and
PRIME-RL/Eurus-2-RL-Data.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pcl_reasoner.core.kinds import Kind
from pcl_reasoner.formats.checks import Tests, assert_cases, code_checks, language_of
from pcl_reasoner.formats.given_tests import parsed, problem_tests
from pcl_reasoner.formats.records import (
    Malformed,
    ReadLimits,
    Reason,
    Row,
    others_of,
    parse_json,
    row_of,
    text_of,
    user_turn,
)

COLUMNS = {
    "data_source": "string",
    "prompt": "list<struct<role, content>>",
    "ability": "string, math or code",
    "reward_model": "struct<ground_truth, style>",
}
"""Column that every file has -> its type."""

_USED = frozenset({"data_source", "prompt", "reward_model"})
_KINDS: dict[str, Kind] = {"math": "math", "code": "code", "coding": "code"}


def read(record: dict[str, Any], limits: ReadLimits) -> Row:
    """Read one record; the system turn is left out.

    Args:
        record: All columns.
        limits: The number of tests that are kept, and their largest size.

    Raises:
        Malformed: The record is malformed, or its ability is neither math nor code.
    """
    ability = record.get("ability")
    kind = _KINDS.get(ability.strip().lower()) if isinstance(ability, str) else None
    if kind is None:
        raise Malformed(Reason.UNKNOWN_KIND, f"ability {ability!r}, expected math or code")
    reward = record.get("reward_model")
    if isinstance(reward, str):
        reward = parse_json(reward, Reason.MALFORMED_METADATA)
    if not isinstance(reward, dict) or "ground_truth" not in reward:
        raise Malformed(Reason.MALFORMED_METADATA)
    problem, source = user_turn(record.get("prompt")), text_of(record.get("data_source"))
    truth, extra = reward["ground_truth"], others_of(record, _USED)
    if kind == "math":
        return row_of(problem, None, text_of(truth), source, extra, kind, "")
    checks = code_checks(_tests(parsed(truth, limits)), limits)
    return row_of(problem, None, "", source, extra, kind, checks)


def _tests(truth: Any) -> Tests:
    if truth is None:
        raise Malformed(Reason.NO_TESTS)
    if not isinstance(truth, dict):
        raise Malformed(Reason.MALFORMED_TESTS, "ground_truth must be an object")
    has_asserts = not truth.get("inputs") and "assert_case" in truth
    call_type = truth.get("call_type") or ("assert" if has_asserts else "std")
    language = language_of(truth.get("language"))
    if call_type == "assert":
        return Tests("assert", assert_cases(truth.get("assert_case")), language=language)
    if call_type != "std":
        detail = f"call_type {call_type!r}, expected std or assert"
        raise Malformed(Reason.MALFORMED_TESTS, detail)
    tests = problem_tests({key: truth.get(key) for key in ("inputs", "outputs", "fn_name")})
    return replace(tests, language=language)
