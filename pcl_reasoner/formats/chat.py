"""General conversations, for a reward model or a judge.

A record, as a Parquet row or a line of JSONL; a response may be missing:

    {"messages": [{"role": "user", "content": "Greet Ben."},
                  {"role": "assistant", "content": "Good morning, Ben."}], "source": "made_up"}

The problem is the first user turn, the response the first assistant turn after it. ShareGPT's
{"conversations": [{"from": "human", "value": "…"}, {"from": "gpt", "value": "…"}]} is read, too.

Sources: allenai/tulu-3-sft-mixture and HuggingFaceH4/no_robots (messages); ShareGPT's form.
"""

from __future__ import annotations

from typing import Any

from pcl_reasoner.formats.records import (
    Malformed,
    ReadLimits,
    Reason,
    Row,
    others_of,
    row_of,
    text_of,
    user_and_assistant_turns,
)

COLUMNS = {"messages or conversations": "list<struct<role, content>>"}
"""Column that every file has -> its type."""

_USED = frozenset({"messages", "conversations", "source"})
_ROLES = {"human": "user", "gpt": "assistant"}
"""ShareGPT's names of the roles -> the usual ones."""


def read(record: dict[str, Any], limits: ReadLimits) -> Row:
    """Read one record.

    Args:
        record: All columns.
        limits: Not used: conversations have no tests.

    Raises:
        Malformed: The record is malformed.
    """
    messages = record.get("messages")
    if messages is None:
        messages = _renamed(record.get("conversations"))
    problem, cot = user_and_assistant_turns(messages)
    source = text_of(record.get("source"))
    return row_of(problem, cot, "", source, others_of(record, _USED), "chat", "")


def _renamed(turns: Any) -> list[dict[str, Any]]:
    if not isinstance(turns, list) or not all(isinstance(turn, dict) for turn in turns):
        raise Malformed(Reason.MALFORMED_MESSAGES)
    return [
        {"role": _ROLES.get(str(turn.get("from")), turn.get("from")), "content": turn.get("value")}
        for turn in turns
    ]
