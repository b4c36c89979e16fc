"""Encodes records into tokens and labels: pack/tokens.py as a MindFormers handler.

handler:
  - {type: InstructionHandler, tokenizer: models/mine, max_segment_tokens: 4096}
  - type: InstructionHandler            # with the tokenizer files that a MindFormers YAML names
    tokenizer: {vocab_file: qwen/vocab.json, merges_file: qwen/merges.txt}
    template: qwen/chat_template.jinja
    max_segment_tokens: 4096
    map_keys: {prompt: question, response: output, reward: score}     # our name: the data's
"""

from collections.abc import Mapping
from typing import Any

from pcl_reasoner.grade.rewards import require_columns
from pcl_reasoner.handlers.common import checked_map, report
from pcl_reasoner.pack.config import OverLength
from pcl_reasoner.pack.encoder import Encoder, load_encoder
from pcl_reasoner.pack.tokens import RECORD_KEYS, Segmenter


class InstructionHandler:
    """Encodes conversations, prompt/response records or sampled responses; see Segmenter.

    Args:
        tokenizer: The model's folder, or a mapping with ``vocab_file`` and ``merges_file``.
        max_segment_tokens: Limit on the tokens per segment.
        over_length: For a longer segment: raise an error, drop it, or truncate its response.
        map_keys: Our name of a column -> its name in the data.
        prompt: ``system``, ``suffix``, ``template``, ``think_newline`` as in load_encoder; other
            keywords, which MindFormers adds, are ignored.
    """

    def __init__(
        self,
        tokenizer: str | Mapping[str, str],
        max_segment_tokens: int,
        over_length: OverLength = "drop",
        map_keys: Mapping[str, str] | None = None,
        **prompt: Any,
    ) -> None:
        used = {key: prompt[key] for key in Encoder.PROMPT_KEYS if key in prompt}
        self.map_keys = checked_map("InstructionHandler", map_keys or {}, RECORD_KEYS)
        encoder = load_encoder(tokenizer, **used)
        self.segmenter = Segmenter(encoder, max_segment_tokens, over_length)

    def __call__(self, dataset: Any) -> Any:
        """Encode a datasets.Dataset of records into a datasets.Dataset of segments.

        Raises:
            InputError: The data lacks a column that ``map_keys`` names.
            StageError: A reward is missing or outside of [0, 1], or a segment is too long.
        """
        needed = self.map_keys.values()
        require_columns("InstructionHandler: the data", dataset.column_names, needed)
        found = self.segmenter.encode_dataset(dataset, self.map_keys, "InstructionHandler")
        report("InstructionHandler", len(dataset), len(found), self.segmenter.dropped)
        return found
