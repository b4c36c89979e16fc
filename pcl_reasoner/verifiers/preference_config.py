"""Settings of the reward model."""

from typing import Annotated, Literal

from pydantic import Field

from pcl_reasoner.core.stage import NOT_HASHED, StageConfig


class RewardModelConfig(StageConfig):
    """How a reward model scores responses, and how a score becomes a reward in [0, 1]."""

    engine: Literal["local", "server"] = "server"
    """``server``: a vLLM pooling server; ``local``: a small Qwen2 reward model on this CPU."""
    model: str = "reward"
    """The reward model's name on its server."""
    shift: float = Field(0.0, allow_inf_nan=False)
    """Score whose reward is 0.5: the reward is sigmoid((score - shift) / scale)."""
    scale: float = Field(1.0, gt=0, allow_inf_nan=False)
    """A score of shift + scale has the reward 0.73; larger values make rewards more equal."""
    with_thinking: bool = False
    """Whether the model also reads the think part; else it reads what follows ``</think>``."""
    max_model_len: int = Field(16384, gt=0)
    """The model's context: maximum length of problem and response together, in tokens."""
    max_missing: float = Field(0.01, ge=0, le=1)
    """Largest share of the scored responses that may end without a score."""
    concurrency: Annotated[int, NOT_HASHED] = Field(64, gt=0)
    """Maximum requests in flight, over all servers together."""
