"""Prompts with instructions that a program can check: IFEval, and Tülu's RLVR-IFeval.

Two records, as a line of JSONL and as a Parquet row:

    {"key": 7, "prompt": "Name four animals without commas.",
     "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}

    messages      [{"role": "user", "content": "Name four animals without commas."}]
    ground_truth  '{"func_name": "validate_no_commas", "N": null, "quantifier": null, …}'

Both become the instructions of IFEval: see instructions/published.py.

Sources: google/IFEval (arXiv 2311.07911), allenai/RLVR-IFeval (arXiv 2411.15124).
"""

from __future__ import annotations

from typing import Any

from pcl_reasoner.formats.checks import instruction_checks
from pcl_reasoner.formats.records import (
    Malformed,
    ReadLimits,
    Reason,
    Row,
    others_of,
    row_of,
    text_of,
    user_turn,
)
from pcl_reasoner.instructions.parsing import to_json
from pcl_reasoner.instructions.published import UnsupportedInstruction, instructions_of

COLUMNS = {
    "prompt or messages": "string, or list<struct<role, content>>",
    "instruction_id_list or ground_truth": "list<string>, or string, JSON",
}
"""Column that every file has -> its type."""

_USED = frozenset({"prompt", "messages", "instruction_id_list", "kwargs", "ground_truth"})


def read(record: dict[str, Any], limits: ReadLimits) -> Row:
    """Read one record.

    Args:
        record: All columns.
        limits: The largest size of the instructions; their number is not limited.

    Raises:
        Malformed: The record is malformed.
    """
    listed = record.get("instruction_id_list") is not None
    problem = record.get("prompt") if listed else user_turn(record.get("messages"))
    try:
        found = to_json(instructions_of(record))
    except UnsupportedInstruction as error:
        raise Malformed(Reason.UNSUPPORTED_INSTRUCTIONS, str(error)) from error
    except ValueError as error:
        raise Malformed(Reason.MALFORMED_INSTRUCTIONS, str(error)) from error
    checks = instruction_checks(found, limits)
    source = text_of(record.get("dataset"))
    return row_of(problem, None, "", source, others_of(record, _USED), "instruction", checks)
