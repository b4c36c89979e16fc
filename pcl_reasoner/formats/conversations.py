"""Lines of the AM-DeepSeek-R1-0528-Distilled set (V1's data).

A record, as one line of JSONL:

    {"conversations": [{"from": "human", "value": "What is 6·7?"},
                       {"from": "assistant", "value": "<think>…</think><answer>42</answer>"}]}

The first value is the question, the second the response; other keys of the line become ``extra``.

Source: a-m-team/AM-DeepSeek-R1-0528-Distilled, math.jsonl.
"""

from typing import Any

from pcl_reasoner.formats.records import Malformed, ReadLimits, Reason, Row, others_of, row_of


def read(record: dict[str, Any], limits: ReadLimits) -> Row:
    """Read one record. The row has an empty ground truth and an empty problem source.

    Args:
        record: The line's object.
        limits: Not used: these records have no tests.

    Raises:
        Malformed: The record is malformed.
    """
    problem, cot = _question_and_response(record.get("conversations"))
    return row_of(problem, cot, "", "", others_of(record, frozenset({"conversations"})))


def _question_and_response(turns: Any) -> tuple[Any, Any]:
    if not isinstance(turns, list) or len(turns) < 2:
        raise Malformed(Reason.MALFORMED_MESSAGES)
    first, second = turns[:2]
    if not isinstance(first, dict) or not isinstance(second, dict):
        raise Malformed(Reason.MALFORMED_MESSAGES)
    return first.get("value"), second.get("value")
