"""Settings of the stages ``tokenize`` and ``pack``."""

from typing import Literal

from pydantic import Field

from pcl_reasoner.core.kinds import Suffix
from pcl_reasoner.core.stage import FileName, StageConfig

OverLength = Literal["error", "drop", "truncate"]
"""Handling of a segment that exceeds the limit: raise an error, drop it, or truncate it."""


class TokenizeConfig(StageConfig):
    """Settings of ``tokenize``: how responses become tokens and labels."""

    renamed = {"max_tokens": "max_segment_tokens"}

    source: Literal["responses", "samples", "rows"] = "responses"
    """``responses``: sampled responses with rewards (RL). ``samples``: sampled responses without
    rewards, e.g. a teacher's (SFT). ``rows``: a data set with a cot (SFT)."""
    encode_text: bool = False
    """Encode the responses' texts with the policy's tokenizer, instead of using their token ids:
    for responses of another model, whose ids mean other texts."""
    max_segment_tokens: int = Field(gt=0)
    """Limit on the tokens per segment: prompt, response and end of turn together."""
    over_length: OverLength = "drop"
    """Handling of a longer segment: raise an error, drop it, or truncate its response."""
    system: str | None = None
    """Text of the system turn; None for no system turn."""
    suffix: Suffix = ""
    """Text that is appended to the problem in the user's turn, or a text for each kind."""
    template: FileName | None = None
    """A jinja file that replaces the model's own chat template."""
    think_newline: bool = False
    """Add V1's newlines after ``<think>`` and before ``</answer>``; sampled ids never change."""
    max_malformed: float = Field(0.0, ge=0, le=1)
    """Largest allowed share of records without a problem or response."""


class PackConfig(StageConfig):
    """Settings of ``pack``: how segments are put into rows."""

    renamed = {"one_a_row": "one_segment_per_row"}

    seq_length: int = Field(gt=0)
    """Tokens per row, padding included."""
    max_segments: int = Field(128, gt=0, le=128)
    """Limit on the segments per row: the model's input ``actual_seq_len`` has 128 entries."""
    seed: int = 0
    """Seed of the rows' order."""
    one_segment_per_row: bool = False
    """Put one segment into each row, as V1.5's script does for training."""
    pad_token_id: int | None = Field(None, ge=0)
    """Token that fills the end of a row; None for the tokenizer's padding token."""
    over_length: OverLength = "error"
    """Handling of a segment longer than a row: raise an error, drop it, or truncate it."""
