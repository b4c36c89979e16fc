"""Settings of the stages ``tokenize`` and ``pack``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pcl_reasoner.core.stage import FileName, StageConfig


class TokenizeConfig(StageConfig):
    """How responses become tokens and labels."""

    renamed = {"max_tokens": "max_segment_tokens"}

    source: Literal["responses", "rows"] = "responses"
    """``responses``: sampled, with rewards (RL). ``rows``: problem and cot of a data set (SFT)."""
    max_segment_tokens: int = Field(gt=0)
    """Tokens a segment at most: prompt, response and end of turn."""
    over_length: Literal["error", "drop", "truncate"] = "drop"
    """What becomes of longer ones."""
    system: str | None = None
    """The system turn's text; None for no system turn."""
    suffix: str = ""
    """Appended to the problem in the user's turn."""
    template: FileName | None = None
    """A jinja file instead of the model's own chat template."""
    think_newline: bool = False
    """V1's newline after ``<think>`` and before ``</answer>``; for text, never for sampled ids."""
    max_malformed: float = Field(0.0, ge=0, le=1)
    """Largest share of rows without a problem or response."""


class PackConfig(StageConfig):
    """How segments are put into rows."""

    renamed = {"one_a_row": "one_segment_per_row"}

    seq_length: int = Field(gt=0)
    """Tokens a row, padding included."""
    max_segments: int = Field(128, gt=0, le=128)
    """Segments a row at most: the compressed attention mask has 128 places."""
    seed: int = 0
    """Of the rows' order."""
    one_segment_per_row: bool = False
    """One segment a row, as V1.5's script trains."""
    pad_token_id: int | None = Field(None, ge=0)
    """Fills a row's end; None for the tokenizer's own."""
    over_length: Literal["error", "drop", "truncate"] = "error"
    """What becomes of segments longer than a row."""
