"""Reads and grades result files line by line: LLMEval's, QwQ's, and this project's.

    {"prompt": "Every morning Aya …", "answer": "204", "gen": ["<think>…"], "accuracy": 1.0}
    {"id": "aime-2024-I-01", "prompt": "…", "answer": "204", "gen": ["…", "…"],
     "accuracy": [1.0, 0.0], "finish_reason": ["stop", "length"]}

QwQ's scripts write one line per sample; LLMEval and this project write one line per question.
``accuracy`` is there if the file was scored. Only the verdict and the end of each response are
kept, because a file with 64 samples per question has some hundred megabytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from pcl_reasoner.core.errors import InputError
from pcl_reasoner.evaluate.benchmark import Question
from pcl_reasoner.grade.answers import grade_by_rule, plain_integer

PROMPT = ("prompt", "problem", "question", "origin_prompt")
ANSWER = ("answer", "ground_truth", "expected_answer", "gold", "label")
RESPONSE = ("gen", "response", "responses", "output", "completion")
RECORDED = ("accuracy", "acc", "score")
END_CHARACTERS = 1500
"""Characters kept of a response's end, for a person to read."""

CountTokens = Callable[[str], int]


@dataclass(frozen=True)
class Sample:
    """A graded response.

    Args:
        outcome: One of grade.answers.OUTCOMES.
        answer: The content of its last box, integers spelled alike; None: it has none.
        recorded: Its score in the file; None: it was not scored.
        tokens: Its length; None without a tokenizer.
        end: Its last characters.
        finish_reason: As in the file; "" if the file has none.
    """

    outcome: str
    answer: str | None
    recorded: float | None
    tokens: int | None
    end: str
    finish_reason: str

    @property
    def correct(self) -> bool:
        """True if it was graded correct; no other outcome earns credit."""
        return self.outcome == "correct"

    @property
    def disputed(self) -> bool:
        """True if the score in the file differs from our verdict."""
        return self.recorded is not None and (self.recorded >= 0.5) != self.correct


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
                record = _record(raw)
            except ValueError as error:
                results.refused.append((number, str(error), raw[:200].decode("utf-8", "replace")))
                continue
            if record["benchmark"] not in (None, benchmark):
                continue
            _add(results, f"{path.name}, line {number}", benchmark, record, count_tokens)
    if not results.samples:
        raise InputError(
            f"{path}: no result in it ({len(results.refused)} lines refused"
            f"{f', the first: {results.refused[0][1]}' if results.refused else ''}). Expected JSON "
            f"lines with {PROMPT[0]}, {ANSWER[0]} and {RESPONSE[0]}."
        )
    return results


def _record(raw: bytes) -> Mapping[str, Any]:
    """Parse a line as question, answer, and responses with their recorded scores.

    Raises:
        ValueError: The line is not a result; the message gives the reason.
    """
    value = json.loads(raw.decode("utf-8"))
    if not isinstance(value, dict):
        raise ValueError(f"not an object but {type(value).__name__}")
    prompt, answer, given = (_first(value, names) for names in (PROMPT, ANSWER, RESPONSE))
    if not isinstance(prompt, str) or not prompt.strip():
        raise ValueError(f"no text in {' or '.join(PROMPT)}")
    if not isinstance(answer, str | int | float) or isinstance(answer, bool) or answer == "":
        raise ValueError(f"no answer in {' or '.join(ANSWER)}")
    if given is None:
        raise ValueError(f"no response in {' or '.join(RESPONSE)}")
    responses = given if isinstance(given, list) else [given]
    recorded = _spread(_first(value, RECORDED), len(responses))
    reasons = _spread(value.get("finish_reason"), len(responses))
    identity = value.get("id")
    return {
        "benchmark": value.get("benchmark"),
        "id": sha256(prompt.encode()).hexdigest()[:12] if identity is None else str(identity),
        "prompt": prompt,
        "answer": str(answer),
        "responses": responses,
        "recorded": recorded,
        "reasons": reasons,
    }


def _first(value: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((value[name] for name in names if value.get(name) is not None), None)


def _spread(value: Any, count: int) -> list[Any]:
    """One value per response: a list of that length, or a single response's value; else None."""
    if isinstance(value, list) and len(value) == count:
        return value
    return [value if count == 1 and not isinstance(value, list) else None] * count


def _add(
    results: Results,
    where: str,
    benchmark: str,
    record: Mapping[str, Any],
    count_tokens: CountTokens | None,
) -> None:
    question = Question(benchmark, record["id"], record["prompt"], record["answer"])
    known = results.questions.setdefault(question.id, question)
    if known.answer != question.answer:
        raise InputError(
            f"{where}: the answer {question.answer!r}, and {known.answer!r} earlier in the file, "
            "to the same question. Mend the one that is incorrect."
        )
    samples = results.samples.setdefault(question.id, [])
    parts = zip(record["responses"], record["recorded"], record["reasons"], strict=True)
    samples += [_graded(question.answer, *one, count_tokens) for one in parts]


def _graded(
    truth: str, response: Any, recorded: Any, reason: Any, count_tokens: CountTokens | None
) -> Sample:
    """Grade a sample. A failed one (no text) counts as incorrect and is not left out."""
    text = response if isinstance(response, str) else ""
    reason = reason if isinstance(reason, str) else ""
    verdict = grade_by_rule(text, truth, reason or ("stop" if text else "error"))
    answer = verdict.answer and (plain_integer(verdict.answer) or verdict.answer.strip())
    said = float(recorded) if isinstance(recorded, int | float) else None
    tokens = count_tokens(text) if count_tokens else None
    return Sample(verdict.outcome, answer, said, tokens, text[-END_CHARACTERS:], reason)


def in_order(results: Results) -> Iterator[tuple[Question, list[Sample]]]:
    """Questions with their samples, in the file's order."""
    for name, question in results.questions.items():
        yield question, results.samples[name]
