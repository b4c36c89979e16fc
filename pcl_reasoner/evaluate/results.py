"""Reads and grades result files line by line: LLMEval's, QwQ's, and this project's.

    {"prompt": "Every morning Aya …", "answer": "204", "gen": ["<think>…"], "accuracy": 1.0}
    {"id": "aime-2024-I-01", "prompt": "…", "answer": "204", "gen": ["…", "…"],
     "accuracy": [1.0, 0.0], "finish_reason": ["stop", "length"]}

QwQ's scripts write one line per sample; LLMEval and this project write one line per question.
``accuracy`` is there if the file was scored. Only the verdict and the end of each response are
kept, because a file with 64 samples per question has some hundred megabytes.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from pcl_reasoner.contamination.fields import first_of
from pcl_reasoner.core.errors import InputError
from pcl_reasoner.evaluate.benchmark import Question
from pcl_reasoner.evaluate.summary import Sample, grade_sample

PROMPT = ("prompt", "problem", "question", "origin_prompt")
ANSWER = ("answer", "ground_truth", "expected_answer", "gold", "label")
RESPONSE = ("gen", "response", "responses", "output", "completion")
RECORDED = ("accuracy", "acc", "score")

CountTokens = Callable[[str], int]


@dataclass
class Results:
    """A file's questions with their samples, in the file's order.

    Args:
        questions: By id; if the file has no ids, by a hash of the prompt.
        samples: By the same id.
        refused: (line number, reason, start of the line) of each line that could not be read.
    """

    questions: dict[str, Question] = field(default_factory=dict)
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    refused: list[tuple[int, str, str]] = field(default_factory=list)


def read_results(path: Path, benchmark: str, count_tokens: CountTokens | None = None) -> Results:
    """Read and grade a result file.

    Args:
        path: JSON lines.
        benchmark: Name for its questions; lines that name another benchmark are skipped.
        count_tokens: Gives a response's length; None: lengths are not known.

    Raises:
        InputError: No line has a question, an answer and a response; or two lines give one
            question different answers.
    """
    results = Results()
    with path.open("rb") as handle:
        for number, raw in enumerate(handle, 1):
            if not raw.strip():
                continue
            try:
                name, question, responses = _parse(raw, benchmark)
            except ValueError as error:
                results.refused.append((number, str(error), raw[:200].decode("utf-8", "replace")))
                continue
            if name in (None, benchmark):
                _add(results, f"{path.name}, line {number}", question, responses, count_tokens)
    if not results.samples:
        raise InputError(
            f"{path}: no result in it ({len(results.refused)} lines refused"
            f"{f', the first: {results.refused[0][1]}' if results.refused else ''}). Expected JSON "
            f"lines with {PROMPT[0]}, {ANSWER[0]} and {RESPONSE[0]}."
        )
    return results


def _parse(raw: bytes, benchmark: str) -> tuple[Any, Question, list[tuple[Any, Any, Any]]]:
    """Parse a line as the benchmark that it names (or None), a question, and its responses.

    Returns:
        Each response comes with its recorded score and its finish reason, or None for either.

    Raises:
        ValueError: The line is not a result; the message gives the reason.
    """
    value = json.loads(raw.decode("utf-8"))
    if not isinstance(value, dict):
        raise ValueError(f"not an object but {type(value).__name__}")
    prompt, answer, response = (first_of(value, names) for names in (PROMPT, ANSWER, RESPONSE))
    if not isinstance(prompt, str) or not prompt.strip():
        raise ValueError(f"no text in {' or '.join(PROMPT)}")
    if not isinstance(answer, str | int | float) or isinstance(answer, bool) or answer == "":
        raise ValueError(f"no answer in {' or '.join(ANSWER)}")
    if response is None:
        raise ValueError(f"no response in {' or '.join(RESPONSE)}")
    responses = response if isinstance(response, list) else [response]
    recorded = _spread(first_of(value, RECORDED), len(responses))
    reasons = _spread(value.get("finish_reason"), len(responses))
    identity = value.get("id")
    name = sha256(prompt.encode()).hexdigest()[:12] if identity is None else str(identity)
    question = Question(benchmark, name, prompt, str(answer))
    return value.get("benchmark"), question, list(zip(responses, recorded, reasons, strict=True))


def _spread(value: Any, count: int) -> list[Any]:
    """One value per response: a list of that length, or a single response's value; else None."""
    if isinstance(value, list) and len(value) == count:
        return value
    return [value if count == 1 and not isinstance(value, list) else None] * count


def _add(
    results: Results,
    where: str,
    question: Question,
    responses: Sequence[tuple[Any, Any, Any]],
    count_tokens: CountTokens | None,
) -> None:
    earlier = results.questions.setdefault(question.id, question)
    if earlier.answer != question.answer:
        raise InputError(
            f"{where}: the answer {question.answer!r}, and {earlier.answer!r} earlier in the file, "
            "to the same question. Correct the one that is incorrect."
        )
    samples = results.samples.setdefault(question.id, [])
    for response, recorded, reason in responses:
        text = response if isinstance(response, str) else ""
        finish_reason = reason if isinstance(reason, str) else ""
        tokens = count_tokens(text) if count_tokens else None
        score = float(recorded) if isinstance(recorded, int | float) else None
        samples.append(grade_sample(text, question.answer, finish_reason, tokens, score))


def in_order(results: Results) -> Iterator[tuple[Question, list[Sample]]]:
    """Questions with their samples, in the file's order."""
    for name, question in results.questions.items():
        yield question, results.samples[name]
