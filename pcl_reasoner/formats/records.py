"""What a source record becomes: a row, or a refusal with its reason.

A row, before it gets its ids:

    problem         "What is 6·7?"
    cot             "<think>6·7 = 42</think>The answer is \\boxed{42}."   "" where there is none
    ground_truth    "42"                               "" where the source gives none
    problem_source  "aops_c4_high_school_olympiads"    "" where the source gives none
    extra           '{"license": "cc-by-4.0"}'         the source's other columns, JSON
    kind            "math"                             or code, instruction, chat, science
    checks          ""                                 or JSON: tests or instructions, see checks.py
"""

import json
import math
from dataclasses import dataclass, fields
from datetime import date
from enum import StrEnum, auto
from typing import Any

from pcl_reasoner.core.kinds import Kind

DETAIL_CHARACTERS = 300
"""Maximum length of a detail: it may quote the record."""


class Reason(StrEnum):
    """Why a source record does not become a row.

    Those named ``malformed_…`` count towards convert's limit ``max_malformed``. The others are
    properties of well-formed records: nothing in this package can check a response to them.
    """

    MALFORMED_JSON = auto()
    """A JSONL line that is not exactly one JSON object, e.g. an empty line."""
    MALFORMED_TOO_LONG = auto()
    """A JSONL line of more than 64 MiB, not parsed; its quarantine record has its first 4 KiB."""
    MALFORMED_DUPLICATE_KEY = auto()
    """A key occurs twice in one JSON object, so the intended value is unknown."""
    MALFORMED_UTF8 = auto()
    """Bytes that are not UTF-8, or text with a lone surrogate, which UTF-8 cannot encode."""
    MALFORMED_MESSAGES = auto()
    """The turns are not a list, or have no question, or no response after the question."""
    MALFORMED_PROBLEM = auto()
    """The problem is null, not a string, or blank."""
    MALFORMED_RESPONSE = auto()
    """The response is null, not a string, or blank."""
    MALFORMED_METADATA = auto()
    """The metadata are null, not a JSON object, or have no expected_answer; or the contest has no
    date although only those of some dates are read."""
    MALFORMED_TESTS = auto()
    """The tests have another form than their format's: inputs and outputs differ in number, an
    argument is not JSON, an entry is not a name, a type of test is unknown, a test does not parse,
    or compressed tests are cut off or hold another object than one text."""
    MALFORMED_INSTRUCTIONS = auto()
    """The instructions are not a list of ids, or their arguments differ from them in number."""
    NO_TESTS = auto()
    """A code problem without a test, or an instruction problem without an instruction."""
    MIXED_TESTS = auto()
    """The tests of one problem have several types (stdin and functional), or several entries."""
    TESTS_TOO_LARGE = auto()
    """More than 64 MiB of tests; compressed tests are measured while they are decompressed."""
    UNSUPPORTED_TESTS = auto()
    """An interactive problem, one that reads and writes files, one that the source cannot run, or a
    language other than Python and C++."""
    UNSUPPORTED_INSTRUCTIONS = auto()
    """An instruction that no check of IFEval expresses."""
    NUL = auto()
    """A NUL in Python code: a test, a checker or a reference solution. Python cannot compile it."""
    OUTSIDE_DATES = auto()
    """The problem's contest was before ``contest_since``, or not before ``contest_before``."""
    UNKNOWN_KIND = auto()
    """The record says that it is neither mathematics nor code."""


@dataclass(frozen=True)
class Row:
    """The content of a source record, before ids are assigned; the module's docstring has one."""

    problem: str
    cot: str
    ground_truth: str
    problem_source: str
    extra: str
    kind: str = "math"
    checks: str = ""

    @property
    def checked_by(self) -> str:
        """The ground truth or the checks; "" if there is neither. A chat needs neither."""
        return self.ground_truth.strip() or self.checks or ("chat" if self.kind == "chat" else "")


@dataclass(frozen=True)
class Refused:
    """A source record that does not become a row.

    Args:
        reason: One of Reason, or the name of the filter that drops the record.
        raw: The text for quarantined.jsonl: the record as read or, for a filter, its problem.
        detail: What exactly is wrong, e.g. the opcode of a pickle; "" if the reason says it all.
    """

    reason: str
    raw: str | bytes
    detail: str = ""


@dataclass(frozen=True)
class Dates:
    """Days from one until another.

    Args:
        since: The first day; None: there is no first one.
        before: The day after the last; None: there is no last one.

    Raises:
        ValueError: There is no such day.
    """

    since: date | None = None
    before: date | None = None

    def __post_init__(self) -> None:
        """Refuse dates without a day."""
        if self.since and self.before and self.since >= self.before:
            raise ValueError(f"no day is since {self.since} and before {self.before}")

    @property
    def are_limited(self) -> bool:
        """Whether some day is outside."""
        return self.since is not None or self.before is not None

    def __contains__(self, day: date) -> bool:
        """Return whether a day is one of them."""
        is_late_enough = self.since is None or day >= self.since
        return is_late_enough and (self.before is None or day < self.before)


@dataclass(frozen=True)
class ReadLimits:
    """Which problems are read, and how many tests of what size.

    Args:
        max_tests: Largest number of tests per problem: the first ones in the source's order. None:
            all.
        max_bytes: Largest size of a problem's tests. More are refused, never parsed.
        contests: Days of the contests that problems of LiveCodeBench come from.
    """

    max_tests: int | None = 10
    max_bytes: int = 64 << 20
    contests: Dates = Dates()


class Malformed(Exception):
    """Raised by functions that parse one record; its message is a value of Reason.

    Args:
        reason: The value.
        detail: What exactly is wrong.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason)
        self.detail = detail[:DETAIL_CHARACTERS]


def row_of(
    problem: Any,
    cot: Any,
    ground_truth: str,
    problem_source: str,
    extra: str,
    kind: Kind = "math",
    checks: str | None = None,
) -> Row:
    """Check the fields that every format has, and make a row of them.

    Args:
        problem: The problem's text.
        cot: The response; may only be blank or None if ``checks`` is given.
        ground_truth: The answer, or "".
        problem_source: Where the problem comes from, or "".
        extra: The source's other columns, JSON.
        kind: The problem's kind.
        checks: None for formats whose records must have a response. Otherwise the JSON for a
            verifier, or "".

    Raises:
        Malformed: The problem or response is not a string or is blank, or a text cannot be encoded
            as UTF-8.
    """
    if not isinstance(problem, str) or not problem.strip():
        raise Malformed(Reason.MALFORMED_PROBLEM)
    if checks is not None and cot is None:
        cot = ""
    # strip() would copy, and a response may have 64 MiB.
    if not isinstance(cot, str) or (checks is None and (not cot or cot.isspace())):
        raise Malformed(Reason.MALFORMED_RESPONSE)
    truth = ground_truth if ground_truth.strip() else ""
    row = Row(problem, cot, truth, problem_source, extra, kind, checks or "")
    if any(has_lone_surrogate(getattr(row, field.name)) for field in fields(row)):
        raise Malformed(Reason.MALFORMED_UTF8)
    return row


def has_lone_surrogate(text: str) -> bool:
    """True if a text has half of a surrogate pair: JSON can contain it, UTF-8 cannot encode it."""
    if text.isascii():
        return False
    pieces = (text[start : start + 65536] for start in range(0, len(text), 65536))
    try:
        for piece in pieces:
            piece.encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


def encodable(text: str) -> str:
    """Replace halves of surrogate pairs, which JSON can contain and a file cannot."""
    return text.encode("utf-8", "replace").decode("utf-8")


def parse_json(text: str, reason: str, numbers_as_text: bool = False) -> Any:
    """Parse JSON strictly: repeated keys, NaN and infinity are errors.

    Args:
        text: The JSON.
        reason: The Reason for text that is not JSON.
        numbers_as_text: Keep a number's digits as text: 1.50 becomes "1.50", at any length.

    Raises:
        Malformed: The text is not JSON, or a key occurs twice.
    """
    kinds: dict[str, Any] = {"parse_float": _finite}
    if numbers_as_text:
        kinds = {"parse_float": str, "parse_int": str}
    try:
        return json.loads(text, object_pairs_hook=_unique_keys, parse_constant=_finite, **kinds)
    except (ValueError, RecursionError) as error:
        raise Malformed(reason) from error


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        raise Malformed(Reason.MALFORMED_DUPLICATE_KEY)
    return record


def _finite(text: str) -> float:
    """Parse a number. NaN, Infinity and 1e999 are errors.

    Raises:
        ValueError: The number is not finite.
    """
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a finite number")
    return value


def to_json(value: Any) -> str:
    """Return any column's value as JSON with sorted keys; NaN and infinity become null."""
    try:
        return json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False, default=str)
    except ValueError:
        text = json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
        return to_json(json.loads(text, parse_constant=lambda _: None))


def text_of(value: Any) -> str:
    """Return a value as text: "" for null, a string as it is, JSON for anything else."""
    if value is None:
        return ""
    return value if isinstance(value, str) else to_json(value)


def others_of(record: dict[str, Any], used: frozenset[str]) -> str:
    """Return a record's columns without ``used`` as JSON, for a row's ``extra``."""
    return to_json({name: record[name] for name in record if name not in used})


def user_turn(messages: Any) -> Any:
    """Return the content of the first user turn of ``[{"role": …, "content": …}]``.

    Raises:
        Malformed: There is no list of turns, or no user turn.
    """
    return user_and_assistant_turns(messages)[0]


def user_and_assistant_turns(messages: Any, answered: bool = False) -> tuple[Any, Any]:
    """Return the contents of the first user turn and of the first assistant turn after it.

    Args:
        messages: The turns.
        answered: Whether an assistant turn must follow.

    Returns:
        The second is None if no assistant turn follows.

    Raises:
        Malformed: There is no list of turns, no user turn, or no assistant turn that must follow.
    """
    if not isinstance(messages, list) or not all(isinstance(turn, dict) for turn in messages):
        raise Malformed(Reason.MALFORMED_MESSAGES)
    roles = [turn.get("role") for turn in messages]
    if "user" not in roles:
        raise Malformed(Reason.MALFORMED_MESSAGES)
    user = roles.index("user")
    answers = [turn for turn in messages[user + 1 :] if turn.get("role") == "assistant"]
    if answered and not answers:
        raise Malformed(Reason.MALFORMED_MESSAGES)
    return messages[user].get("content"), answers[0].get("content") if answers else None
