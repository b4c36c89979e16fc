"""Lines of the AM-DeepSeek-R1-0528-Distilled set (V1's data).

A record, as one line of JSONL:

    {"conversations": [{"from": "human", "value": "What is 6·7?"},
                       {"from": "assistant", "value": "<think>…</think><answer>42</answer>"}]}

The first value is the question, the second the response; other keys of the line become ``extra``.

Source: a-m-team/AM-DeepSeek-R1-0528-Distilled, math.jsonl.
"""

from typing import Any

from pcl_reasoner.curate.records import Malformed, Reason, Refused, Row, parse_json, row_of, to_json


def read_line(line: bytes) -> Row | Refused:
    """Read one line. The row has an empty ground truth and an empty problem source."""
    try:
        record = _parsed(line)
        problem, cot = _question_and_response(record.pop("conversations", None))
        return row_of(problem, cot, "", "", to_json(record))
    except Malformed as error:
        return Refused(str(error), line.rstrip(b"\r\n"))


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        # A byte order mark can only occur at the start of the file's first line.
        text = line.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Malformed(Reason.MALFORMED_UTF8) from error
    value = parse_json(text, Reason.MALFORMED_JSON)
    if not isinstance(value, dict):
        raise Malformed(Reason.MALFORMED_JSON)
    return value


def _question_and_response(turns: Any) -> tuple[Any, Any]:
    if not isinstance(turns, list) or len(turns) < 2:
        raise Malformed(Reason.MALFORMED_MESSAGES)
    first, second = turns[:2]
    if not isinstance(first, dict) or not isinstance(second, dict):
        raise Malformed(Reason.MALFORMED_MESSAGES)
    return first.get("value"), second.get("value")
