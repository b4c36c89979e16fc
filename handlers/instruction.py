"""Records -> tokens and labels, as a MindFormers handler over pcl_reasoner.pack.tokens.

handler:
  - {type: InstructionHandler, tokenizer: models/mine, max_tokens: 4096}
  - type: InstructionHandler            # the same from the files that MindFormers' YAML names
    tokenizer: {vocab_file: qwen/vocab.json, merges_file: qwen/merges.txt}
    template: qwen/chat_template.jinja
    max_tokens: 4096
    map_keys: {prompt: question, response: output, reward: score}     # ours: the data's
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pcl_reasoner.handlers.report import report

from pcl_reasoner.artifact import fingerprint
from pcl_reasoner.errors import InputError, StageError
from pcl_reasoner.pack.template import ChatTemplate, load_template
from pcl_reasoner.pack.tokens import SCHEMA, Encoder, OverLength, Tally, encode_batch, load_encoder
from pcl_reasoner.pack.vocabulary import read_vocabulary

OUR_KEYS = (
    *("conversations", "prompt", "problem", "response", "cot", "token_ids", "finish_reason"),
    *("problem_id", "sample_index", "reward", "pass_rate", "advantage"),
)
"""What ``map_keys`` may name: the columns that a record of ours can have."""


class InstructionHandler:
    """Encodes conversations, prompt/response maps or sampled responses; see encode_batch.

    Args:
        tokenizer: The model's folder, or a mapping with ``vocab_file`` and ``merges_file``.
        max_tokens: Tokens a segment at most.
        over_length: What becomes of longer ones.
        map_keys: Our column -> the data's column.
        prompt: ``system``, ``suffix``, ``template``, ``think_newline`` as in load_encoder; the rest
            of MindFormers' keywords is not used.

    Raises:
        InputError: ``map_keys`` names what is not known, or the tokenizer's files are not named.
    """

    def __init__(
        self,
        tokenizer: str | Mapping[str, str],
        max_tokens: int,
        over_length: OverLength = "drop",
        map_keys: Mapping[str, str] | None = None,
        **prompt: Any,
    ) -> None:
        used = {key: prompt[key] for key in Encoder.PROMPT_KEYS if key in prompt}
        self.encoder = build_encoder(tokenizer, used)
        self.max_tokens, self.over_length, self.tally = max_tokens, over_length, Tally()
        self.map_keys = checked_map(map_keys or {})
        named = tokenizer if isinstance(tokenizer, str) else dict(tokenizer)
        self.identity = fingerprint([named, max_tokens, over_length, self.map_keys, used])

    def __call__(self, dataset: Any) -> Any:
        """A datasets.Dataset of records -> one of segments.

        Raises:
            InputError: The data has not a column that ``map_keys`` names.
            StageError: A reward is missing or outside of [0, 1].
        """
        from datasets import Features

        missing = [theirs for theirs in self.map_keys.values() if theirs not in dataset.features]
        if missing:
            raise InputError(
                f"InstructionHandler: map_keys names {', '.join(missing)}, the data has "
                f"{', '.join(dataset.column_names)}. Name its own columns on the right."
            )
        found = dataset.map(
            self._encode,
            batched=True,
            batch_size=64,
            with_indices=True,
            remove_columns=dataset.column_names,
            features=Features.from_arrow_schema(SCHEMA),
            load_from_cache_file=False,
            new_fingerprint=fingerprint([dataset._fingerprint, self.identity])[:16],
        )
        report("InstructionHandler", len(dataset), len(found), self.tally.dropped)
        return found

    def _encode(self, batch: dict[str, list[Any]], rows: list[int]) -> dict[str, list[Any]]:
        renamed = {**batch, **{ours: batch[theirs] for ours, theirs in self.map_keys.items()}}
        if "reward" in renamed:
            _check_rewards(renamed["reward"], rows)
        records = {row: {key: renamed[key][at] for key in renamed} for at, row in enumerate(rows)}
        return encode_batch(self.encoder, records, self.max_tokens, self.over_length, self.tally)


def build_encoder(tokenizer: str | Mapping[str, str], prompt: Mapping[str, Any]) -> Encoder:
    """The encoder of a model's folder, or of a vocabulary and its merges.

    Args:
        tokenizer: As in InstructionHandler.
        prompt: Keywords of load_encoder.

    Raises:
        InputError: A mapping does not name both files.
    """
    if isinstance(tokenizer, str):
        return load_encoder(Path(tokenizer), **prompt)
    if not (tokenizer.get("vocab_file") and tokenizer.get("merges_file")):
        raise InputError(
            "InstructionHandler: tokenizer must be a model's folder, or have vocab_file and "
            f"merges_file; got {', '.join(tokenizer) or 'nothing'}."
        )
    vocab_file = Path(tokenizer["vocab_file"])
    rest = {key: value for key, value in prompt.items() if key != "template"}
    own = read_vocabulary(vocab_file, Path(tokenizer["merges_file"]))
    return Encoder(own, _template(vocab_file.parent, prompt.get("template"), tokenizer), **rest)


def _template(folder: Path, file: str | None, tokens: Mapping[str, str]) -> ChatTemplate:
    """The template beside the vocabulary; a file alone will do where nothing else lies there."""
    if file is None or (folder / "tokenizer_config.json").is_file():
        return load_template(folder, file)
    special = {key: text for key, text in tokens.items() if key.endswith("_token")}
    return ChatTemplate(Path(file).read_text(encoding="utf-8"), special)


def checked_map(map_keys: Mapping[str, str]) -> dict[str, str]:
    """``map_keys`` as it is, once every key is one of ours.

    Raises:
        InputError: A key is not.
    """
    for key in map_keys:
        if key not in OUR_KEYS:
            near = difflib.get_close_matches(key, OUR_KEYS, 1)
            meant = f" Did you mean {near[0]}?" if near else ""
            raise InputError(
                f"InstructionHandler: map_keys has {key}; expected one of "
                f"{', '.join(OUR_KEYS)}, each with the data's column.{meant}"
            )
    return dict(map_keys)


def _check_rewards(rewards: list[float | None], rows: list[int]) -> None:
    for row, reward in zip(rows, rewards, strict=True):
        # The comparison is false for NaN too.
        if reward is None or not 0.0 <= reward <= 1.0:
            raise StageError(
                f"InstructionHandler: row {row}: the reward must be in [0, 1], got {reward}. "
                "A missing reward is not a 0: grade the response, or leave its row out."
            )
