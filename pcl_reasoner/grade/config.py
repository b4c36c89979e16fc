"""Settings of the stages ``grade`` and ``select``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, model_validator

from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.stage import NOT_HASHED, FileName, StageConfig

BOTH = ("cascade", "audit")
"""Methods in which rule and judge grade the same responses."""


class GradeConfig(StageConfig):
    """How responses are graded."""

    renamed = {"judge_max_tokens": "judge_max_new_tokens"}

    method: Literal["rule", "judge", "cascade", "audit"] = "rule"
    """``rule`` compares the boxed answer; ``judge`` asks a model, as the V1.5 paper does;
    ``cascade`` asks it where the rule is not sure; ``audit`` lets both grade everything, and the
    judge's word counts."""
    human: FileName | None = None
    """A person's verdicts: a disagreements.jsonl with ``correct`` filled in."""
    last_tokens: int = Field(300, gt=0)
    """How much of a response's end the judge reads."""
    prompt: FileName | None = None
    """The judge's prompt file with {ground_truth} and {candidate}; None for the shipped one."""
    judge_model: str = "judge"
    """The judge's name at its server."""
    judge_temperature: float = Field(0.6, ge=0)
    """0 is greedy; then a reply that cannot be read is not mended by asking again."""
    judge_top_p: float = Field(0.95, gt=0, le=1)
    """The judge's nucleus."""
    judge_top_k: int = Field(20, ge=0)
    """Only this many most likely tokens may be drawn; 0 = all."""
    judge_min_p: float = Field(0.0, ge=0, le=1)
    """Only tokens with this share of the largest probability may be drawn."""
    judge_thinking: bool = True
    """Whether it thinks first, sent as ``enable_thinking`` to its template."""
    judge_max_new_tokens: int = Field(8192, gt=0)
    """New tokens a reply, the judge's own thinking included."""
    judge_max_model_len: Annotated[int, NOT_HASHED] = Field(16384, gt=0)
    """Its context: longest prompt and reply together, in tokens."""
    judge_concurrency: Annotated[int, NOT_HASHED] = Field(64, gt=0)
    """Questions under way at the same time, over all servers."""
    judge_attempts: int = Field(3, gt=0)
    """How often it is asked about one response whose verdict cannot be read."""
    max_missing: float = Field(0.01, ge=0, le=1)
    """Largest share of responses that the judge may leave without a readable verdict."""
    seed: int = 0
    """Of the judge's sampling."""

    @model_validator(mode="after")
    def _weights_of_the_judge(self, info: ValidationInfo) -> GradeConfig:
        around = info.context or {}
        placement = around.get("placement")
        started = self.method != "rule" and placement is not None and placement.judging
        if started and "judge" not in around["roles"]:
            raise ValueError(
                "the launch file's placement.judging starts the judge and needs its weights: "
                "give the stage the input judge, a Hugging Face folder"
            )
        return self

    def asked_urls(self, placement: Placement) -> list[str]:
        """The judge's servers, where a judge grades."""
        return [] if self.method == "rule" else placement.judge_urls


class SelectConfig(StageConfig):
    """Which graded responses are trained on."""

    renamed = {"max_tokens": "max_response_tokens"}
    renamed_values = {"drop_groups": {"all_wrong": "all_incorrect"}}

    drop_groups: Literal["none", "all_incorrect", "both"] = "both"
    """Groups of one problem's responses to drop: none, all incorrect, or also all correct."""
    max_response_tokens: int | None = Field(None, gt=0)
    """Longer responses are dropped; None for no limit."""
    shuffle_rewards: bool = False
    """A control experiment: exchange rewards among the responses of mixed groups."""
    seed: int = 0
    """Of that exchange."""
