"""Encodes records into tokens and labels: pack/tokens.py as a MindFormers handler.

handler:
  - {type: InstructionHandler, tokenizer: models/mine, max_segment_tokens: 4096}
  - type: InstructionHandler            # the same from the files that MindFormers' YAML names
    tokenizer: {vocab_file: qwen/vocab.json, merges_file: qwen/merges.txt}
    template: qwen/chat_template.jinja
    max_segment_tokens: 4096
    map_keys: {prompt: question, response: output, reward: score}     # ours: the data's
"""

from collections.abc import Mapping
from typing import Any

from pcl_reasoner.grade.rewards import require_columns
from pcl_reasoner.handlers.common import checked_map, report
from pcl_reasoner.pack.config import OverLength
from pcl_reasoner.pack.encoder import Encoder, build_encoder
from pcl_reasoner.pack.tokens import RECORD_KEYS, Segmenter


class InstructionHandler:
    """Encodes conversations, prompt/response maps or sampled responses; see Segmenter.

    Args:
        tokenizer: The model's folder, or a mapping with ``vocab_file`` and ``merges_file``.
        max_segment_tokens: Limit on the tokens per segment.
        over_length: Handling of longer segments.
        map_keys: Our column -> the data's column.
        prompt: ``system``, ``suffix``, ``template``, ``think_newline`` as in load_encoder; other
            keywords of MindFormers are ignored.
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
        self.segmenter = Segmenter(build_encoder(tokenizer, used), max_segment_tokens, over_length)

    def __call__(self, dataset: Any) -> Any:
        """Encode a datasets.Dataset of records into a datasets.Dataset of segments.

        Raises:
            InputError: The data lacks a column that ``map_keys`` names.
            StageError: A reward is missing or outside of [0, 1].
        """
        needed = self.map_keys.values()
        require_columns("InstructionHandler: the data", dataset.column_names, needed)
        found = self.segmenter.encode_dataset(dataset, self.map_keys, "InstructionHandler")
        report("InstructionHandler", len(dataset), len(found), self.segmenter.tally.dropped)
        return found
