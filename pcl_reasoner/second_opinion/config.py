"""Settings of the second opinion: which judge is asked, about how many pairs, and how."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated

from pydantic import Field

from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.stage import NOT_HASHED, FileName, ServerNeeds, StageConfig


class JudgeConfig(StageConfig):
    """A judge model that decides about pairs of a text and a benchmark question."""

    model: str = "judge"
    """The judge's name on its server."""
    questions: int = Field(3, gt=0)
    """Largest number of benchmark questions per text that the judge is asked about."""
    characters: int = Field(6000, gt=0)
    """The judge reads this many characters of the text, and as many of the question."""
    prompt: FileName | None = None
    """The judge's prompt file with {text} and {question}; None for the shipped one."""
    temperature: float = Field(0.6, ge=0)
    """0 takes the most likely token; asking again after an unreadable reply is then useless."""
    top_p: float = Field(0.95, gt=0, le=1)
    """Sample only from the fewest most likely tokens whose summed probability reaches this."""
    top_k: int = Field(20, ge=0)
    """Sample only from this many most likely tokens; 0 = all."""
    min_p: float = Field(0.0, ge=0, le=1)
    """Sample only tokens with at least this fraction of the largest probability."""
    thinking: bool = False
    """Whether the judge thinks first; sent to its chat template as ``enable_thinking``."""
    max_new_tokens: int = Field(4096, gt=0)
    """New tokens per reply, the judge's own thinking included."""
    max_model_len: Annotated[int, NOT_HASHED] = Field(16384, gt=0)
    """The judge's context: maximum length of prompt and reply together, in tokens."""
    concurrency: Annotated[int, NOT_HASHED] = Field(64, gt=0)
    """Maximum requests in flight, over all servers together."""
    attempts: int = Field(2, gt=0)
    """Maximum number of replies per pair, if none has a readable verdict."""
    seed: int = 0
    """Seed of the judge's sampling."""

    def servers(self, roles: Collection[str] = ()) -> list[ServerNeeds]:
        """The judge's servers."""
        return [ServerNeeds("judging", "judge", self.model, self.max_model_len)]


def missing_weights(placement: Placement, roles: Collection[str]) -> str | None:
    """Return what to do if the launch file starts the judge and the stage has no weights of it."""
    if placement.described("judging") is None or "judge" in roles:
        return None
    return (
        "the launch file's placement.judging starts the judge and needs its weights: give the "
        "stage the input judge, e.g. inputs: {judge: SOURCE} with sources: {SOURCE: {path: FOLDER, "
        "kind: model}}"
    )
