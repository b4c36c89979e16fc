"""Reads and grades result files line by line: LLMEval's, QwQ's, and this project's.

    {"prompt": "Every morning Aya …", "answer": "204", "gen": ["<think>…"], "accuracy": 1.0}
    {"id": "aime-2024-I-01", "prompt": "…", "answer": "204", "gen": ["…", "…"],
     "accuracy": [1.0, 0.0], "finish_reason": ["stop", "length"]}

QwQ's scripts write one line per sample; LLMEval and this project write one line per question.
Scored files also have ``accuracy``. This project's lines also have the name of their ``benchmark``,
and the ``kind`` of a question that is not of mathematics. What grades responses of a kind without
answers (programs, instructions) is not in the file: their recorded score counts, and they are never
disputed; lines without one are refused.
Only the verdict and the end of each response are kept, because a file with 64 samples per question
has several hundred megabytes.
"""

import json
import re
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from pcl_reasoner.contamination.fields import first_of
from pcl_reasoner.core.errors import InputError
from pcl_reasoner.core.kinds import KINDS
from pcl_reasoner.evaluate.benchmark import Question
from pcl_reasoner.evaluate.summary import Sample, grade_sample, recorded_sample
from pcl_reasoner.verifiers.answers import ANSWERED, prepare

PROMPT = ("prompt", "problem", "question", "origin_prompt")
ANSWER = ("answer", "ground_truth", "expected_answer", "gold", "label")
RESPONSE = ("gen", "response", "responses", "output", "completion")
RECORDED = ("accuracy", "acc", "score")

CountTokens = Callable[[str], int]
Graded = tuple[Question, list[Sample]]
"""A question with its graded samples, in the order of sample_index."""
Refused = tuple[int, str, str]
"""(line number, reason, start of the line) of a line that could not be read."""
_AIME = re.compile(r"aime[-_ ]?(?:20)?(24|25)", re.IGNORECASE)


def benchmark_of(path: Path) -> str:
    """Return the benchmark that a file's name gives: aime24, aime25, or the name without suffix."""
    found = _AIME.search(path.name)
    return f"aime{found[1]}" if found else path.stem


def read_results(
    path: Path, benchmark: str | None = None, count_tokens: CountTokens | None = None
) -> tuple[dict[str, dict[str, Graded]], list[Refused]]:
    """Read and grade a result file.

    Args:
        path: JSON lines.
        benchmark: Read only lines with this benchmark or without one. None: read all lines; those
            without a benchmark get the result of ``benchmark_of``.
        count_tokens: Text -> number of tokens; None: lengths stay unknown.

    Returns:
        Benchmark -> question id -> graded question (the id is a hash of the prompt if the file has
        none); and the lines that could not be read.

    Raises:
        InputError: No line has a question, an answer and a response; all lines name other
            benchmarks; or two lines give one question different answers.
    """
    refused: list[Refused] = []
    found: dict[str, dict[str, Graded]] = {}
    others: set[str] = set()
    with path.open("rb") as handle:
        for number, raw in enumerate(handle, 1):
            if not raw.strip():
                continue
            try:
                question, responses = _parse(raw, benchmark or benchmark_of(path))
            except ValueError as error:
                refused.append((number, str(error), _start(raw)))
                continue
            if benchmark not in (None, question.benchmark):
                others.add(question.benchmark)
                continue
            if question.kind not in ANSWERED and not all(_is_score(one[1]) for one in responses):
                refused.append((number, _unscored(question.kind), _start(raw)))
                continue
            graded = found.setdefault(question.benchmark, {})
            _add(graded, f"{path.name}, line {number}", question, responses, count_tokens)
    if not found:
        raise _nothing_found(path, benchmark, others, refused)
    return found, refused


def _nothing_found(
    path: Path, benchmark: str | None, others: set[str], refused: Sequence[Refused]
) -> InputError:
    if others:
        return InputError(
            f"{path}: no result of benchmark {benchmark} in it; its lines name "
            f"{', '.join(sorted(others))}. Leave out --benchmark, or give one of these."
        )
    return InputError(
        f"{path}: no result in it ({len(refused)} lines refused"
        f"{f', the first: {refused[0][1]}' if refused else ''}). Expected JSON lines with "
        f"{PROMPT[0]}, {ANSWER[0]} and {RESPONSE[0]}."
    )


def _parse(raw: bytes, benchmark: str) -> tuple[Question, list[tuple[Any, Any, Any]]]:
    """Parse a line into a question and its responses.

    Args:
        raw: The line.
        benchmark: The question's benchmark if the line names none.

    Returns:
        The question, and (response, recorded score or None, finish reason or None) per response.

    Raises:
        ValueError: The line is not a result; the message gives the reason.
    """
    try:
        value = json.loads(raw.decode("utf-8"))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(value, dict):
        raise ValueError(f"not an object but {type(value).__name__}")
    prompt, answer, response = (first_of(value, names) for names in (PROMPT, ANSWER, RESPONSE))
    if not isinstance(prompt, str) or not prompt.strip():
        raise ValueError(f"no text in {' or '.join(PROMPT)}")
    kind = value["kind"] if value.get("kind") in KINDS else "math"
    if kind not in ANSWERED:
        answer = ""
    elif not isinstance(answer, str | int | float) or isinstance(answer, bool) or answer == "":
        raise ValueError(f"no answer in {' or '.join(ANSWER)}")
    if response is None:
        raise ValueError(f"no response in {' or '.join(RESPONSE)}")
    responses = response if isinstance(response, list) else [response]
    recorded = _spread(first_of(value, RECORDED), len(responses))
    reasons = _spread(value.get("finish_reason"), len(responses))
    identity = value.get("id")
    name = sha256(prompt.encode()).hexdigest()[:12] if identity is None else str(identity)
    question = Question(str(value.get("benchmark") or benchmark), name, prompt, str(answer), kind)
    return question, list(zip(responses, recorded, reasons, strict=True))


def _start(raw: bytes) -> str:
    return raw[:200].decode("utf-8", "replace")


def _unscored(kind: str) -> str:
    expected = ", ".join(RECORDED)
    return f"kind {kind}: what grades it is not in the file, and no score per response ({expected})"


def _is_score(value: Any) -> bool:
    return isinstance(value, int | float)


def _spread(value: Any, count: int) -> list[Any]:
    """Return a list of ``count`` values; all are None if ``value`` has another number of them."""
    if isinstance(value, list) and len(value) == count:
        return value
    return [value if count == 1 and not isinstance(value, list) else None] * count


def _add(
    graded: dict[str, Graded],
    where: str,
    question: Question,
    responses: Sequence[tuple[Any, Any, Any]],
    count_tokens: CountTokens | None,
) -> None:
    earlier, samples = graded.setdefault(question.id, (question, []))
    if earlier.answer != question.answer:
        raise InputError(
            f"{where}: the answer {question.answer!r}, and {earlier.answer!r} earlier in the file, "
            "to the same question. Correct the one that is incorrect."
        )
    texts = [one if isinstance(one, str) else "" for one, _, _ in responses]
    prepare((text, question.answer, "stop") for text in texts)
    for response, recorded, reason in responses:
        text = response if isinstance(response, str) else ""
        finish_reason = reason if isinstance(reason, str) else ""
        tokens = count_tokens(text) if count_tokens else None
        score = float(recorded) if _is_score(recorded) else None
        if question.kind in ANSWERED or score is None:
            sample = grade_sample(text, question.answer, finish_reason, tokens, score)
        else:
            sample = recorded_sample(text, finish_reason, tokens, score)
        samples.append(sample)
