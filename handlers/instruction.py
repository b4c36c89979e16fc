"""Records -> tokens and labels, as a MindFormers handler over pcl_reasoner.pack.tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pcl_reasoner.artifact import fingerprint
from pcl_reasoner.pack.tokens import SCHEMA, Encoder, OverLength, Tally, encode_batch, load_encoder


class InstructionHandler:
    """Encodes conversations, prompt/response maps or sampled responses; see encode_batch.

    Args: the model's folder; tokens a segment at most; what becomes of longer ones; and as keywords
    ``system``, ``suffix``, ``template``, ``think_newline`` (others of MindFormers' are not used).
    """

    def __init__(
        self, tokenizer: str, max_tokens: int, over_length: OverLength = "drop", **prompt: Any
    ) -> None:
        used = {key: prompt[key] for key in Encoder.PROMPT_KEYS if key in prompt}
        self.encoder = load_encoder(Path(tokenizer), **used)
        self.max_tokens, self.over_length, self.tally = max_tokens, over_length, Tally()
        self.identity = fingerprint([tokenizer, max_tokens, over_length, used])

    def __call__(self, dataset: Any) -> Any:
        """A datasets.Dataset of records -> one of segments."""
        from datasets import Features

        return dataset.map(
            self._encode,
            batched=True,
            batch_size=64,
            with_indices=True,
            remove_columns=dataset.column_names,
            features=Features.from_arrow_schema(SCHEMA),
            load_from_cache_file=False,
            new_fingerprint=fingerprint([dataset._fingerprint, self.identity])[:16],
        )

    def _encode(self, batch: dict[str, list[Any]], rows: list[int]) -> dict[str, list[Any]]:
        records = {row: {key: batch[key][at] for key in batch} for at, row in enumerate(rows)}
        return encode_batch(self.encoder, records, self.max_tokens, self.over_length, self.tally)
