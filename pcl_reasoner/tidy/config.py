"""Settings of the stage ``tidy``."""

from typing import Literal

from pydantic import Field

from pcl_reasoner.core.stage import StageConfig

Tags = Literal["think_answer", "think_only"]


class TidyConfig(StageConfig):
    """Which responses are dropped. The defaults are choices: AM-Thinking-v1 publishes no values."""

    max_perplexity: float | None = Field(20.0, ge=1)
    """Responses with a higher perplexity are dropped; null: perplexity is not looked at."""
    repeat: Literal["consecutive", "count", "none"] = "consecutive"
    """``consecutive``: drop a response in which a phrase of at least ``min_tokens`` tokens stands
    ``times`` times in a row. ``count``: drop it if a phrase of ``min_tokens`` tokens occurs more
    than ``max_occurrences`` times anywhere. ``none``: keep all repeats."""
    min_tokens: int = Field(20, gt=0)
    """Tokens of the shortest phrase; a shorter one counts as a phrase that is several copies."""
    times: int = Field(4, ge=3)
    """With ``consecutive``: a phrase may stand in a row fewer times than this."""
    max_occurrences: int = Field(20, gt=0)
    """With ``count``: a phrase may occur at most this often; occurrences may overlap."""
    tags: Tags = "think_answer"
    """``think_answer``: a response is <think>…</think><answer>…</answer>. ``think_only``, for
    models without answer tags: it is <think>…</think> and then text."""
