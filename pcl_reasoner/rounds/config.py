"""Settings of the stage ``rl``."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator

from pcl_reasoner.core.kinds import Kind
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.stage import NOT_HASHED, ServerNeeds, StageConfig
from pcl_reasoner.grade.config import GradeConfig, KindMethod, Normalise, Overlong
from pcl_reasoner.inference.settings import SamplingConfig
from pcl_reasoner.losses import ON_POLICY
from pcl_reasoner.rounds.plateau import Plateau
from pcl_reasoner.train.config import TrainConfig
from pcl_reasoner.train.machine import MachineConfig
from pcl_reasoner.train.stopping import Stop
from pcl_reasoner.weights.model_config import ModelShape

_METHODS: tuple[KindMethod, ...] = ("answer", "tests", "instructions", "reward_model")
"""How a round's responses can be graded."""
_PLAIN_SAMPLING = {
    "temperature": 1.0,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
}
"""With other values the responses are drawn from another distribution than the policy's."""


class RoundProbe(StageConfig):
    """How held-out problems are answered during training, by the weights of a round."""

    every: int = Field(5, gt=0)
    """Rounds between two probes; the first probe is before round 0."""
    problems: int = Field(200, gt=0)
    """Number of held-out problems, from the beginning of the input ``held_out``."""
    n: int = Field(8, gt=0)
    """Responses per held-out problem."""


class RlConfig(MachineConfig, SamplingConfig):
    """Settings of ``rl``: strictly on-policy GRPO, one optimizer update per round.

    Source: AM-Thinking-v1 (arXiv 2505.08311), GRPO without a KL term.
    """

    renamed = {"max_tokens": "max_new_tokens"}

    kinds: list[Kind] | None = Field(None, min_length=1)
    """Kinds of problems that are trained on; null: all. Problems of other kinds are left out."""
    queries: int = Field(256, gt=0)
    """Problems per round."""
    n: int = Field(16, gt=1)
    """Responses per problem: a group, whose rewards are compared."""
    temperature: float = Field(1.0, ge=0)
    """1 unless ``off_policy`` is ``allowed``."""
    top_k: int = Field(0, ge=0)
    """0 unless ``off_policy`` is ``allowed``."""
    top_p: float = Field(1.0, gt=0, le=1)
    """1 unless ``off_policy`` is ``allowed``."""
    off_policy: Literal["refused", "allowed"] = "refused"
    """``refused``: the responses are drawn from the policy's own distribution."""
    max_rounds: int = Field(400, gt=0)
    """The stage ends after this many rounds, if it has not reached a plateau before."""
    plateau: Plateau | None = Plateau()
    """When held-out accuracy counts as no longer rising; null: only ``max_rounds`` ends the stage.
    """
    probe: RoundProbe = RoundProbe()
    """How held-out problems are answered."""
    grade: GradeConfig = GradeConfig()
    """How responses are graded, by kind of problem; as in the stage ``grade``."""
    overlong: Overlong = "zero"
    """What a response counts that reached its token limit. ``zero``: reward 0 and no advantage;
    ``masked``: it is left out of the group; ``wrong``: reward 0, as an incorrect response."""
    normalise: Normalise = "std"
    """``std``: advantages are divided by the standard deviation of the group's rewards; ``none``:
    they are not (Dr. GRPO)."""
    shuffle_rewards: bool = False
    """A control experiment: exchange the rewards of a round's responses at random."""
    skip_without_advantage: bool = True
    """Do not compute responses without an advantage: they have no gradient. They still count in the
    mean over the round."""
    loss_parameters: dict[str, float] = Field(default_factory=dict)
    """Parameters of the loss ``grpo`` that differ from their defaults."""
    train_on_ratio: bool = False
    """Take the sampler's log-probs as the old policy's; else the ratio is 1 by definition."""
    max_mismatch: Annotated[float | None, NOT_HASHED] = Field(None, gt=0)
    """The stage stops if the mean absolute difference between the trainer's and the sampler's
    log-probs of a round is larger; null: no limit."""

    learning_rate: float = Field(gt=0)
    """Highest learning rate."""
    schedule: Literal["constant", "cosine"] = "constant"
    """``cosine``: from learning_rate down to learning_rate_end in max_rounds."""
    learning_rate_end: float = Field(0.0, ge=0)
    """Learning rate of round max_rounds, with ``cosine``."""
    warmup_rounds: int = Field(0, ge=0)
    """Rounds in which the learning rate rises from 0; round 0 changes nothing then."""
    betas: tuple[float, float] = (0.9, 0.95)
    """AdamW's two decay rates."""
    eps: float = Field(1e-8, gt=0)
    """AdamW's epsilon."""
    weight_decay: float = Field(0.0, ge=0)
    """AdamW's weight decay."""
    clip_grad: float = Field(1.0, gt=0)
    """Largest gradient norm of a round."""
    row_tokens: int = Field(gt=0)
    """Tokens per packed row; at least max_model_len."""
    rows: int = Field(8, gt=0)
    """Packed rows per micro-step, over all ranks. A round has as many micro-steps as it needs."""
    micro_batch_size: int = Field(1, gt=0)
    """Packed rows per rank and micro-batch."""
    max_segments: int = Field(128, gt=0)
    """Limit on the segments per row."""
    logits_chunk_tokens: int | None = Field(None, gt=0)
    """As in ``train``."""
    entropy: bool = True
    """As in ``train``."""
    checkpoint_rounds: int = Field(5, gt=0)
    """Rounds between two checkpoints, the largest number of updates that a kill can cost."""
    keep_checkpoints: int = Field(2, gt=0)
    """Checkpoints that are kept."""
    keep_weights: int = Field(2, gt=0)
    """Rounds whose weights are kept while the stage runs; at least 2 with servers, whose new
    weights are compared with those before."""
    weights_dtype: Literal["float32", "bfloat16"] = "float32"
    """Data type in which samplers get the weights. ``bfloat16`` halves what they read; servers that
    compute in bfloat16 lose nothing."""
    keep_rows: Literal["all", "last"] = "all"
    """Which rounds' packed rows stay in the artifact. ``all``: training can be repeated."""
    model: ModelShape | None = None
    """Expected shape of the model, as in ``train``."""
    stop_if: Annotated[Stop, NOT_HASHED] = Stop()
    """Rules that end the stage, as in ``train``; a step is a round. They see the responses that are
    trained on."""

    model_role: ClassVar[str] = "policy"
    runs_on_hosts: ClassVar[bool] = True
    waits_for_runner: ClassVar[bool] = True

    @property
    def responses(self) -> int:
        """Responses per round."""
        return self.queries * self.n

    @property
    def max_micro_steps(self) -> int:
        """Micro-steps of the longest run: every response has a row of its own."""
        return self.max_rounds * math.ceil(self.responses / self.rows) + 1

    @property
    def training(self) -> TrainConfig:
        """The same training as settings of ``train``; a global batch is a micro-step."""
        return TrainConfig.model_validate(self._training())

    def _training(self) -> dict[str, Any]:
        machine = {name: getattr(self, name) for name in MachineConfig.model_fields}
        same = (
            "seed learning_rate learning_rate_end betas eps weight_decay clip_grad "
            "micro_batch_size max_segments logits_chunk_tokens entropy keep_checkpoints model "
            "stop_if"
        )
        on_policy = 0.0 if self.train_on_ratio else 1.0
        return {
            **machine,
            **{name: getattr(self, name) for name in same.split()},
            "loss": "grpo",
            "loss_parameters": {ON_POLICY: on_policy, **self.loss_parameters},
            "epochs": 1,
            "warmup_ratio": 0.0,
            "global_batch_size": self.rows,
            "seq_length": self.row_tokens,
        }

    def servers(self, roles: Collection[str] = ()) -> list[ServerNeeds]:
        """The policy's servers, and the reward model's if it grades."""
        policy = [replace(one, replaceable=True) for one in super().servers(roles)]
        return [*policy, *self._graded.servers(roles)]

    @property
    def _graded(self) -> GradeConfig:
        """How the kinds that are trained on are graded."""
        methods = self.grade.kinds.items()
        kinds = {kind: how for kind, how in methods if self.kinds is None or kind in self.kinds}
        return self.grade.model_copy(update={"kinds": kinds})

    def trains_on(self, placement: Placement) -> Placement:
        """The hosts that do not sample."""
        return placement.of_training

    def serves_on(self, placement: Placement) -> Placement:
        """The hosts that only sample."""
        return placement.of_sampling

    @field_validator("grade")
    @classmethod
    def _gradable(cls, grade: GradeConfig) -> GradeConfig:
        wrong = {kind: how for kind, how in grade.kinds.items() if how not in _METHODS}
        if wrong:
            raise ValueError(f"kinds: a round can be graded by {', '.join(_METHODS)}, got {wrong}")
        if grade.method != "rule" or grade.human:
            raise ValueError("a round has no judge and no human verdicts: use method rule")
        return grade

    @model_validator(mode="after")
    def _consistent(self, info: ValidationInfo) -> Self:
        found = [*self._sampling_problems(), *self._training_problems(info.context)]
        roles = (info.context or {}).get("roles")
        if self.plateau is not None and roles is not None and "held_out" not in roles:
            found.append(
                "plateau needs held-out problems: give the stage the input held_out, or set "
                "plateau to null"
            )
        if found:
            raise ValueError("; ".join(found))
        return self

    def _sampling_problems(self) -> list[str]:
        found = []
        different = {
            name: getattr(self, name)
            for name, value in _PLAIN_SAMPLING.items()
            if getattr(self, name) != value
        }
        if different and self.off_policy == "refused":
            wanted = ", ".join(f"{name} {_PLAIN_SAMPLING[name]:g}" for name in different)
            got = ", ".join(f"{name} {value:g}" for name, value in different.items())
            found.append(
                f"on-policy responses are drawn with {wanted}, got {got}: leave it out, or set "
                "off_policy to allowed"
            )
        if self.engine == "server" and self.keep_weights < 2:
            found.append(
                f"keep_weights must be at least 2 with servers, got {self.keep_weights}: their new "
                "weights are compared with those before"
            )
        if self.max_new_tokens is None:
            found.append("max_new_tokens is needed: longer responses count as overlong")
        if self.max_model_len > self.row_tokens:
            found.append(
                f"row_tokens must be at least max_model_len, got {self.row_tokens} and "
                f"{self.max_model_len}: the longest response must fit into a row"
            )
        return found

    def _training_problems(self, context: Any) -> list[str]:
        found = []
        if self.stop_if.correct_share_below is not None and self.skip_without_advantage:
            found.append(
                "stop_if.correct_share_below needs skip_without_advantage: false, because only "
                "responses that are trained on are counted: set it, or leave the rule out"
            )
        if self.precision == "float16":
            found.append("precision float16 has no loss scale over several micro-steps: bfloat16")
        decided = 0.0 if self.train_on_ratio else 1.0
        if (given := self.loss_parameters.get(ON_POLICY, decided)) != decided:
            found.append(
                f"train_on_ratio is {self.train_on_ratio}, so loss_parameters.{ON_POLICY} must be "
                f"{decided:g}, got {given:g}: leave it out"
            )
        ranks, rows = self.data_parallel * self.micro_batch_size, self.rows
        alone = self.pipeline_stage == 1
        if alone and rows != ranks:
            found.append(
                "without a pipeline, rows must be data_parallel x micro_batch_size, got "
                f"{rows} and {self.data_parallel} x {self.micro_batch_size}"
            )
        placement = (context or {}).get("placement")
        if placement is not None:
            context = {**context, "placement": self.trains_on(placement)}
        try:
            TrainConfig.model_validate(self._training(), context=context)
        except ValidationError as error:
            sentences = "; ".join(one["msg"] for one in error.errors()).split("; ")
            named = [
                sentence.removeprefix("Value error, ").replace("global_batch_size", "rows")
                for sentence in sentences
            ]
            # Without a pipeline the rule above is the stricter one.
            found += [one for one in named if not (alone and "micro_batch_size" in one)]
        return found
