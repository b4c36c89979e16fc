"""Settings of the stages ``grade`` and ``select``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, model_validator

from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.stage import NOT_HASHED, FileName, StageConfig

BOTH = ("cascade", "audit")
"""Methods with which the rule and the judge both grade."""
JUDGE_LOG = "verdicts.partial.jsonl"
"""Name of the file with the judge's verdicts in a running stage's folder (judging.py)."""


DropGroups = Literal["none", "all_incorrect", "both"]


class GradeConfig(StageConfig):
    """How responses are graded."""

    renamed = {"judge_max_tokens": "judge_max_new_tokens"}

    method: Literal["rule", "judge", "cascade", "audit"] = "rule"
    """``rule`` compares the boxed answer with the ground truth; ``judge`` asks a model, as the V1.5
    paper does; ``cascade`` asks it only where the rule had to parse LaTeX; ``audit`` uses rule and
    model for all responses. If both grade a response, the model's verdict counts."""
    human: FileName | None = None
    """File of human verdicts: a disagreements.jsonl with ``correct`` filled in."""
    last_tokens: int = Field(300, gt=0)
    """Tokens at a response's end that the judge reads."""
    prompt: FileName | None = None
    """The judge's prompt file with {ground_truth} and {candidate}; None for the shipped one."""
    judge_model: str = "judge"
    """The judge's name on its server."""
    judge_temperature: float = Field(0.6, ge=0)
    """0 takes the most likely token; asking again after an unreadable reply is then useless."""
    judge_top_p: float = Field(0.95, gt=0, le=1)
    """Sample only from the fewest most likely tokens whose summed probability reaches this."""
    judge_top_k: int = Field(20, ge=0)
    """Sample only from this many most likely tokens; 0 = all."""
    judge_min_p: float = Field(0.0, ge=0, le=1)
    """Sample only tokens with at least this fraction of the largest probability."""
    judge_thinking: bool = True
    """Whether the judge thinks first; sent to its chat template as ``enable_thinking``."""
    judge_max_new_tokens: int = Field(8192, gt=0)
    """New tokens per reply, the judge's own thinking included."""
    judge_max_model_len: Annotated[int, NOT_HASHED] = Field(16384, gt=0)
    """The judge's context: maximum length of prompt and reply together, in tokens."""
    judge_concurrency: Annotated[int, NOT_HASHED] = Field(64, gt=0)
    """Maximum requests in flight, over all servers together."""
    judge_attempts: int = Field(3, gt=0)
    """Maximum number of questions about one response, if no reply has a readable verdict."""
    max_missing: float = Field(0.01, ge=0, le=1)
    """Largest share of the judged responses that may end without a readable verdict."""
    seed: int = 0
    """Seed of the judge's sampling."""

    @model_validator(mode="after")
    def _weights_of_the_judge(self, info: ValidationInfo) -> GradeConfig:
        context = info.context or {}
        placement = context.get("placement")
        started = self.method != "rule" and placement is not None and placement.judging
        if started and "judge" not in context["roles"]:
            raise ValueError(
                "the launch file's placement.judging starts the judge and needs its weights: "
                "give the stage the input judge, e.g. grade: {inputs: {judge: SOURCE}} with "
                "sources: {SOURCE: {path: FOLDER, kind: model}}"
            )
        return self

    def request_urls(self, placement: Placement) -> list[str]:
        """Return the judge's server URLs; empty if no judge grades."""
        return [] if self.method == "rule" else placement.judge_urls


class SelectConfig(StageConfig):
    """Which graded responses are trained on."""

    renamed = {"max_tokens": "max_response_tokens"}
    renamed_values = {"drop_groups": {"all_wrong": "all_incorrect"}}

    drop_groups: DropGroups = "both"
    """Groups (all responses to a problem) to drop: ``none``; ``all_incorrect``: groups without a
    correct response; ``both``: also groups with only correct responses."""
    max_response_tokens: int | None = Field(None, gt=0)
    """Responses with more tokens are dropped; None for no limit."""
    shuffle_rewards: bool = False
    """A control experiment: exchange rewards among all responses of partly correct groups."""
    seed: int = 0
    """Seed of the exchange of rewards."""
