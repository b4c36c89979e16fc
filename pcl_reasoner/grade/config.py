"""Settings of the stages ``grade`` and ``select``."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Literal

from pydantic import Field, model_validator

from pcl_reasoner.core.kinds import Kind
from pcl_reasoner.core.stage import NOT_HASHED, FileName, ServerNeeds, StageConfig
from pcl_reasoner.sandbox.config import SandboxConfig
from pcl_reasoner.verifiers.checked import RewardRule
from pcl_reasoner.verifiers.preference_config import RewardModelConfig
from pcl_reasoner.verifiers.python_reward_config import PythonRewardConfig

KindMethod = Literal["answer", "tests", "instructions", "reward_model", "rubric", "python"]
"""``answer``: the boxed answer, by ``method``. ``tests``: the problem's tests, in a sandbox.
``instructions``: the problem's instructions. ``reward_model``: a score. ``rubric``: three numbers
of the judge. ``python``: a function of the user's own."""
BOTH = ("cascade", "audit")
"""Methods with which the rule and the judge both grade."""
JUDGE_LOG = "verdicts.partial.jsonl"
"""Name of the file with the judge's verdicts in a running stage's folder (judging.py)."""


Overlong = Literal["zero", "masked", "wrong"]
"""What a response that reached its token limit counts in its group (rewards.group_advantages)."""
Normalise = Literal["std", "none"]
"""Whether advantages are divided by the standard deviation of their group's rewards."""
DropGroups = Literal["none", "all_incorrect", "both"]


class GradeConfig(StageConfig):
    """How responses are graded."""

    renamed = {"judge_max_tokens": "judge_max_new_tokens"}

    method: Literal["rule", "judge", "cascade", "audit"] = "rule"
    """``rule`` compares the boxed answer with the ground truth; ``judge`` asks a model, as the V1.5
    paper does; ``cascade`` asks it only where the rule had to parse LaTeX; ``audit`` uses rule and
    model for all responses. If both grade a response, the model's verdict counts."""
    kinds: Mapping[Kind, KindMethod] = {
        "math": "answer",
        "science": "answer",
        "code": "tests",
        "instruction": "instructions",
        "chat": "reward_model",
    }
    """Kind of problem -> how its responses are graded."""
    code_reward: RewardRule = "all"
    """``all``: 1 if every test passes, else 0, as AM-Thinking-v1 has it; tests stop at the first
    failure, and ``score`` is then null. ``share``: the share of tests that pass; all tests run."""
    instruction_reward: RewardRule = "all"
    """``all``: 1 if every instruction is followed; ``share``: the share that is followed."""
    sandbox: SandboxConfig = SandboxConfig()
    """Limits of the programs that are tested, and which Python runs them."""
    reward_model: RewardModelConfig = RewardModelConfig()
    """The reward model, for kinds that it grades."""
    rubric_prompt: FileName | None = None
    """The rubric's prompt file with {problem} and {answer}; None for the shipped one."""
    python: PythonRewardConfig | None = None
    """The user's own function, for kinds that it grades."""
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
    least_agreement: Annotated[float, NOT_HASHED] = Field(0.8, ge=0, le=1)
    """Share of a sample of math responses on which judge and rule must agree; the stage stops if
    even the upper end of its 95 % interval is lower. 0 accepts every judge."""
    seed: int = 0
    """Seed of the judge's sampling."""

    @model_validator(mode="after")
    def _function_of_the_user(self) -> GradeConfig:
        if "python" in self.kinds.values() and self.python is None:
            raise ValueError("kinds: python needs a function: python: {file: …, function: …}")
        return self

    @property
    def asks_judge(self) -> bool:
        """Whether a judge model is asked."""
        answers = "answer" in self.kinds.values() and self.method != "rule"
        return answers or "rubric" in self.kinds.values()

    @property
    def scores(self) -> bool:
        """Whether servers of a reward model are asked."""
        return "reward_model" in self.kinds.values() and self.reward_model.engine == "server"

    def servers(self, roles: Collection[str] = ()) -> list[ServerNeeds]:
        """The judge's and the reward model's servers, as far as they grade."""
        judge = (self.judge_model, self.judge_max_model_len)
        reward = (self.reward_model.model, self.reward_model.max_model_len)
        found = [ServerNeeds("judging", "judge", *judge)] if self.asks_judge else []
        return [*found, *([ServerNeeds("scoring", "reward_model", *reward)] if self.scores else [])]


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
