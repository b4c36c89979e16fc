"""Decodes packed or tokenized rows to spans of one kind: prompt, trained, masked or padding.

[Span("<|im_start|>user…assistant\\n", "prompt", 0, 1.0),
 Span("<think>…<|im_end|>", "trained", 0, 1.0), Span("<|endoftext|>…", "padding", 1, None)]
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from tokenizers import Tokenizer

from pcl_reasoner.core.errors import InputError
from pcl_reasoner.pack.arrow_folder import read_arrow_folder
from pcl_reasoner.pack.tokens import IGNORED
from pcl_reasoner.prompt.model_files import open_tokenizer

Kind = Literal["prompt", "trained", "masked", "padding"]


@dataclass(frozen=True)
class Span:
    """Consecutive tokens of one segment and one kind.

    Args:
        text: The decoded tokens, special tokens included.
        kind: ``trained`` or ``padding``; untrained tokens are ``prompt`` before the first trained
            token of their segment, ``masked`` after it.
        segment: 0-based index in the row; for padding the number of segments.
        reward: The reward of the segment; None for padding.
    """

    text: str
    kind: Kind
    segment: int
    reward: float | None


def preview_rows(folder: Path, tokenizer_file: Path, rows: Sequence[int]) -> list[list[Span]]:
    """Return the spans of each requested row of an Arrow folder.

    Args:
        folder: Output of ``pack`` or ``tokenize``.
        tokenizer_file: The model's tokenizer.json.
        rows: 0-based indices of the rows.

    Raises:
        InputError: A row does not exist.
    """
    table = read_arrow_folder(folder)
    beyond = [row for row in rows if not 0 <= row < table.num_rows]
    if beyond:
        raise InputError(f"{folder}: no row {beyond[0]}; it has rows 0 to {table.num_rows - 1}.")
    tokenizer = open_tokenizer(tokenizer_file)
    return [spans(table.slice(row, 1).to_pylist()[0], tokenizer) for row in rows]


def spans(record: dict[str, Any], tokenizer: Tokenizer) -> list[Span]:
    """Split one row into spans.

    Args:
        record: A packed row, or one segment as tokenize writes it.
        tokenizer: Decodes the tokens.
    """
    rewards = record["rewards"] if "rewards" in record else [record["reward"]]
    segment_ids = record.get("segment_ids") or [0] * len(record["input_ids"])
    kinds = _kinds(record["labels"], segment_ids, len(rewards))
    found = []
    for (segment, kind), group in groupby(
        zip(segment_ids, kinds, record["input_ids"], strict=True), key=lambda item: item[:2]
    ):
        text = tokenizer.decode([item[2] for item in group], skip_special_tokens=False)
        reward = None if kind == "padding" else rewards[segment]
        found.append(Span(text, kind, segment, reward))
    return found


def _kinds(labels: Sequence[int], segment_ids: Sequence[int], segments: int) -> list[Kind]:
    kinds: list[Kind] = []
    begun: set[int] = set()
    for label, segment in zip(labels, segment_ids, strict=True):
        if segment >= segments:
            kinds.append("padding")
        elif label != IGNORED:
            begun.add(segment)
            kinds.append("trained")
        else:
            kinds.append("masked" if segment in begun else "prompt")
    return kinds
