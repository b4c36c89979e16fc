"""Settings of the stage ``revise``."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, model_validator

from pcl_reasoner.core.stage import NOT_HASHED, ServerNeeds, StageConfig


class ReviseConfig(StageConfig):
    """When a ground truth is disputed, and how the third model is asked about it."""

    min_votes: int = Field(2, gt=0)
    """Fewest equivalent answers that are a majority."""
    min_answered: float = Field(0.5, ge=0, le=1)
    """Smallest share of a problem's responses that must have an answer."""
    opinion: Literal["required", "none"] = "required"
    """``required``: a disputed problem needs a third model's answer, recorded (input ``opinion``)
    or from a server (``placement.opinion_urls``); ``none``: no third model is used."""
    disputed: Literal["keep", "drop"] = "keep"
    """What happens to a disputed problem if the third model confirms neither answer."""
    opinion_suffix: str = "\nReason step by step and put the final answer in \\boxed{}."
    """Appended to the problem in the question to the third model."""
    opinion_model: str = "opinion"
    """The third model's name on its server."""
    opinion_api: Literal["vllm", "openai"] = "vllm"
    """``vllm``: send every sampling field. ``openai``: send only model, messages, n and
    max_completion_tokens; OpenAI's reasoning models (o4-mini) refuse requests with the others."""
    opinion_temperature: float = Field(0.0, ge=0)
    """0 takes the most likely token; asking again after an unreadable reply then rarely helps."""
    opinion_top_p: float = Field(1.0, gt=0, le=1)
    """Sample only from the fewest most likely tokens whose summed probability reaches this."""
    opinion_top_k: int = Field(0, ge=0)
    """Sample only from this many most likely tokens; 0 = all."""
    opinion_thinking: bool = True
    """Whether the model thinks first; sent to its chat template as ``enable_thinking``."""
    opinion_max_new_tokens: int = Field(32768, gt=0)
    """New tokens per reply, the model's own thinking included."""
    opinion_max_model_len: Annotated[int, NOT_HASHED] = Field(40960, gt=0)
    """The model's context: maximum length of prompt and reply together, in tokens."""
    opinion_concurrency: Annotated[int, NOT_HASHED] = Field(64, gt=0)
    """Maximum requests in flight, over all servers together."""
    opinion_attempts: int = Field(3, gt=0)
    """Maximum number of questions about one problem, if no reply has a readable answer."""
    max_missing: Annotated[float, NOT_HASHED] = Field(0.2, ge=0, le=1)
    """Largest share of the disputed problems that may end without a readable opinion."""
    seed: int = 0
    """Seed of the third model's sampling."""

    @model_validator(mode="after")
    def _no_unused_opinions(self, info: ValidationInfo) -> ReviseConfig:
        roles = (info.context or {}).get("roles", ())
        if self.opinion == "none" and "opinion" in roles:
            raise ValueError("remove the input opinion, or opinion: none: the input is not read")
        return self

    def servers(self, roles: Collection[str] = ()) -> list[ServerNeeds]:
        """The third model's servers; none if it is not used. It is asked what is not recorded."""
        if self.opinion == "none":
            return []
        model = (self.opinion_model, self.opinion_max_model_len)
        return [ServerNeeds("opinion", "opinion", *model)]
