"""Samples -> token ids and labels.

    problem   "1 + 1?"        response  "<think>…</think><answer>\\\\boxed{2}</answer>"
    input_ids [<|im_start|>, user, …, <|im_start|>, assistant, \\n, <think>, …, <|im_end|>]
    labels    [        −100, −100, …,         −100,      −100, −100, <think>, …, <|im_end|>]

Labels are unshifted: ``labels[i]`` is ``input_ids[i]`` where token i is trained on, −100 elsewhere.
Where the assistant's part begins is what the template says, never a token id written down here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import pyarrow as pa
from tokenizers import Tokenizer

from pcl_reasoner.curate import problem_id
from pcl_reasoner.errors import StageError
from pcl_reasoner.pack.template import ChatTemplate, load_template, prompt_messages

IGNORED = -100
"""The label of a token that is not trained on."""
OverLength = Literal["error", "drop", "truncate"]

_ROLES = {"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant"}


@dataclass(frozen=True)
class Sample:
    """One prompt and the response to it, before tokens.

    Args:
        messages: The prompt's turns.
        problem: The problem alone, which names the sample.
        response: The assistant's text.
        token_ids: The response as it was sampled; None to encode its text.
        finished: False for a response that was cut off, which gets no end of turn.
    """

    messages: list[dict[str, str]]
    problem: str
    response: str
    token_ids: list[int] | None = None
    finished: bool = True


@dataclass(frozen=True)
class Encoder:
    """Turns samples into tokens as one model reads them.

    Args:
        tokenizer: The model's.
        template: The model's, or the one given in its place.
        system: The system turn's text; None for none.
        suffix: Appended to every problem.
        think_newline: True for V1's newline after ``<think>`` and before ``</answer>``.
    """

    PROMPT_KEYS: ClassVar = ("system", "suffix", "template", "think_newline")
    """What load_encoder takes beside the model's folder."""

    tokenizer: Tokenizer
    template: ChatTemplate
    system: str | None = None
    suffix: str = ""
    think_newline: bool = False

    @cached_property
    def end_of_turn(self) -> list[int]:
        """Ids that end an assistant's turn."""
        return self.ids(self.template.end_of_turn)

    def ids(self, text: str) -> list[int]:
        """Token ids of a text, with nothing put before or after it."""
        found: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return found

    def prompt_ids(self, messages: list[dict[str, str]]) -> list[int]:
        """Ids of a prompt, up to where the assistant's own tokens begin."""
        return self.ids(self.template.render(messages, add_generation_prompt=True))

    def response_ids(self, sample: Sample) -> list[int]:
        """Ids of a response: those that were drawn where they are known, else its text's."""
        if sample.token_ids:
            return sample.token_ids
        if not sample.response:
            return []
        text = with_newlines(sample.response) if self.think_newline else sample.response
        return self.ids(text) + (self.end_of_turn if sample.finished else [])

    def read(self, record: Mapping[str, Any]) -> Sample:
        """Read a record of any known shape; see sample_of."""
        return sample_of(record, self.system, self.suffix)


def load_encoder(
    model_folder: Path,
    system: str | None = None,
    suffix: str = "",
    template: str | None = None,
    think_newline: bool = False,
) -> Encoder:
    """Read a model folder's tokenizer and template.

    Args:
        model_folder: Has tokenizer.json and tokenizer_config.json.
        system: As in Encoder.
        suffix: As in Encoder.
        template: A jinja file instead of the model's own template.
        think_newline: As in Encoder.
    """
    tokenizer = Tokenizer.from_file(str(model_folder / "tokenizer.json"))
    chat = load_template(model_folder, template)
    return Encoder(tokenizer, chat, system, suffix, think_newline)


def with_newlines(response: str) -> str:
    """V1's rule: a newline after the first ``<think>`` and before the last ``</answer>``.

    Source: PCL-Reasoner-V1's length filter.
    """
    before, opened, rest = response.partition("<think>")
    if opened and not rest.startswith("\n"):
        response = f"{before}<think>\n{rest}"
    body, closed, after = response.rpartition("</answer>")
    if closed and not body.endswith("\n"):
        response = f"{body}\n</answer>{after}"
    return response


def sample_of(record: Mapping[str, Any], system: str | None, suffix: str) -> Sample:
    """Read one record of V1's or V1.5's data.

    Args:
        record: ``conversations`` ([{from, value}, …]); or ``problem`` (or ``prompt``) with
            ``response`` or ``cot``, and ``token_ids`` and ``finish_reason`` where it was sampled.
        system: The system turn for records that do not bring their own.
        suffix: Appended to the problem.

    Raises:
        ValueError: A part is missing; the message is the reason's name in the counts.
    """
    if record.get("conversations") is not None:
        return _sample_of_conversation(record["conversations"], system, suffix)
    problem = record.get("problem") or record.get("prompt")
    if not isinstance(problem, str) or not problem:
        raise ValueError("malformed_no_problem")
    response = record.get("response", record.get("cot"))
    token_ids = record.get("token_ids")
    sampled = "finish_reason" in record
    if not sampled and not (isinstance(response, str) and response):
        raise ValueError("malformed_no_response")
    messages = prompt_messages(problem, system, suffix)
    finished = record.get("finish_reason", "stop") == "stop"
    return Sample(messages, problem, response or "", token_ids or None, finished)


def _sample_of_conversation(turns: Any, system: str | None, suffix: str) -> Sample:
    """The last turn is the response; those before it are the prompt."""
    try:
        pairs = [(turn["from"], turn["value"]) for turn in turns]
        messages = [{"role": _ROLES.get(who, who), "content": str(text)} for who, text in pairs]
        *prompt, last = messages
        question = next(turn for turn in prompt if turn["role"] == "user")
    except (TypeError, KeyError, ValueError, StopIteration) as error:
        raise ValueError("malformed_conversation") from error
    if last["role"] != "assistant" or not last["content"]:
        raise ValueError("malformed_no_response")
    problem = question["content"]
    prompt[-1]["content"] += suffix
    if system is not None and prompt[0]["role"] != "system":
        prompt.insert(0, {"role": "system", "content": system})
    return Sample(prompt, problem, last["content"])


@dataclass
class Tally:
    """What became of the records, over all batches.

    Args:
        dropped: Reason -> records that gave no segment.
        malformed: (row, reason) of those that cannot be read.
        truncated: Segments that were cut.
        seen: Problem -> segments so far; numbers records that have no ``sample_index``.
    """

    dropped: Counter[str] = field(default_factory=Counter)
    malformed: list[tuple[int, str]] = field(default_factory=list)
    truncated: int = 0
    seen: Counter[str] = field(default_factory=Counter)


SCHEMA = pa.schema(
    [
        ("problem_id", pa.string()),
        ("sample_index", pa.int32()),
        ("input_ids", pa.list_(pa.int32())),
        ("labels", pa.list_(pa.int32())),
        ("length", pa.int32()),
        ("reward", pa.float32()),
        ("pass_rate", pa.float32()),
        ("advantage", pa.float32()),
    ]
)
"""Columns of a tokenized folder, in order; ``advantage`` is null where the data have none."""


def encode_batch(
    encoder: Encoder,
    records: Mapping[int, Mapping[str, Any]],
    max_tokens: int,
    over_length: OverLength,
    tally: Tally,
) -> dict[str, list[Any]]:
    """Encode records into segments of at most ``max_tokens`` tokens.

    Args:
        encoder: The model's.
        records: Row -> record as sample_of reads it, with ``reward``, ``pass_rate`` and
            ``advantage`` where there are any.
        max_tokens: Prompt, response and end of turn together.
        over_length: What becomes of longer ones.
        tally: Counted on.

    Returns:
        SCHEMA's columns, one value a segment.

    Raises:
        StageError: A segment is too long and ``over_length`` is ``error``.
    """
    columns: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}
    for row, record in records.items():
        try:
            sample = encoder.read(record)
        except ValueError as error:
            tally.malformed.append((row, str(error)))
            tally.dropped[str(error)] += 1
            continue
        prompt = encoder.prompt_ids(sample.messages)
        response = encoder.response_ids(sample)
        if not response:
            tally.dropped["empty_response"] += 1
            continue
        if len(prompt) + len(response) > max_tokens:
            if over_length == "error":
                raise _too_long(record, len(prompt) + len(response), max_tokens)
            if over_length == "drop" or len(prompt) >= max_tokens:
                tally.dropped["over_length"] += 1
                continue
            response = response[: max_tokens - len(prompt)]
            tally.truncated += 1
        values = _segment(record, sample, prompt, response, tally)
        for column, value in zip(SCHEMA.names, values, strict=True):
            columns[column].append(value)
    return columns


def _too_long(record: Mapping[str, Any], length: int, max_tokens: int) -> StageError:
    name = f"{record.get('problem_id', 'a problem')}/{record.get('sample_index', 'without index')}"
    return StageError(
        f"sample {name} has {length} tokens with its prompt, the limit is {max_tokens}. Raise "
        "max_tokens, or set over_length to drop or truncate."
    )


def _segment(
    record: Mapping[str, Any],
    sample: Sample,
    prompt: list[int],
    response: list[int],
    tally: Tally,
) -> tuple[Any, ...]:
    """One segment's values, in SCHEMA's order. Data without rewards is all to be learnt: 1.0."""
    name = record.get("problem_id") or problem_id(sample.problem)
    index = record.get("sample_index")
    number = tally.seen[name] if index is None else index
    tally.seen[name] += 1
    return (
        name,
        number,
        prompt + response,
        [IGNORED] * len(prompt) + response,
        len(prompt) + len(response),
        record.get("reward", 1.0),
        record.get("pass_rate", 1.0),
        record.get("advantage"),
    )
