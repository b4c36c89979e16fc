"""Settings of the train and export stages."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.files import nearest
from pcl_reasoner.core.stage import NOT_HASHED, StageConfig
from pcl_reasoner.inference.settings import SamplingConfig
from pcl_reasoner.losses import LOSSES, ON_POLICY, RENAMED_PARAMETERS
from pcl_reasoner.sandbox.config import SandboxConfig
from pcl_reasoner.train.layout import batch_problems, layout_problems
from pcl_reasoner.train.machine import MachineConfig
from pcl_reasoner.train.stopping import Stop
from pcl_reasoner.weights.model_config import ModelShape, read_shape


class Probe(SamplingConfig):
    """A few problems that the policy answers during training; fields as in ``sample``."""

    every: int = Field(gt=0)
    """Optimizer steps between two probes; the first probe is before training."""
    problems: int = Field(16, gt=0)
    """Number of problems, from the beginning of the input ``probe``."""
    engine: Literal["local", "server"] = "local"
    n: int = Field(1, gt=0)
    temperature: float = Field(1.0, ge=0)
    top_k: int = Field(0, ge=0)
    top_p: float = Field(1.0, gt=0, le=1)
    sandbox: SandboxConfig = SandboxConfig()
    """Limits of programs, if the probe has code problems."""

    @field_validator("engine")
    @classmethod
    def _embedded(cls, engine: str) -> str:
        if engine != "local":
            raise ValueError(
                "the training process samples with the local sampler: leave engine out, "
                "or probe null and evaluate exported checkpoints with a server"
            )
        return engine


class LearningConfig(StageConfig):
    """What is learned, and how: the settings of ``train`` that are not in MachineConfig."""

    loss: str
    """Name of a loss in pcl_reasoner/losses."""
    loss_parameters: dict[str, float] = Field(default_factory=dict)
    """Parameters of the loss that differ from their defaults."""
    seed: int
    """Seed of the rows' order."""
    epochs: int = Field(gt=0)
    """Passes over the packed rows."""
    max_steps: int | None = Field(None, gt=0)
    """Stop after this many optimizer steps; all steps if left out."""
    learning_rate: float = Field(gt=0)
    """Highest learning rate."""
    learning_rate_end: float = Field(ge=0)
    """Learning rate of the last step."""
    warmup_ratio: float = Field(ge=0, lt=1)
    """Share of all steps in which the learning rate rises."""
    global_batch_size: int = Field(gt=0)
    """Packed rows per optimizer step, over all ranks."""
    micro_batch_size: int = Field(1, gt=0)
    """Packed rows per rank and micro-batch."""
    seq_length: int = Field(gt=0)
    """Tokens per packed row."""
    max_segments: int = Field(128, gt=0)
    """Limit on the segments per row: the length of ``actual_seq_len``."""
    balance_rows: bool = False
    """Distribute the rows of each step to the ranks so that their attention costs are even."""
    betas: tuple[float, float] = (0.9, 0.95)
    """AdamW's two decay rates."""
    eps: float = Field(1e-8, gt=0)
    """AdamW's epsilon."""
    weight_decay: float = Field(0.0, ge=0)
    """AdamW's weight decay."""
    clip_grad: float | None = Field(1.0, gt=0)
    """Largest global gradient norm; null for no clipping."""
    checkpoint_steps: int = Field(100, gt=0)
    """Optimizer steps between two checkpoints."""
    keep_checkpoints: int = Field(10, gt=0)
    """Checkpoints that are kept; older ones are deleted."""
    model: ModelShape | None = None
    """Expected shape of the model; it must be the shape in the weights' config.json."""
    p_drop_warning: float = Field(0.02, ge=0)
    """Warn when the mean p of correct responses falls by more than this."""
    stop_if: Annotated[Stop, NOT_HASHED] = Stop()
    """Rules that end a run before its last step. They are not in the fingerprint: with other rules,
    a run resumes from its last checkpoint."""
    entropy: bool = True
    """Compute the entropy of every token for metrics.jsonl."""
    logits_chunk_tokens: int | None = Field(None, gt=0)
    """Number of a rank's tokens whose logits exist at the same time; null for all tokens, which is
    faster if the logits are small."""
    probe: Probe | None = None
    """Problems that are answered at intervals during training; only on a CPU."""

    def most_checkpoints(self, steps: int | None) -> int:
        """Return how many checkpoints are on the disk at most.

        Args:
            steps: Optimizer steps in all; None: not known yet.
        """
        steps = steps or self.max_steps
        if steps is None:
            return self.keep_checkpoints
        return min(self.keep_checkpoints, -(-steps // self.checkpoint_steps))

    @field_validator("loss")
    @classmethod
    def _check_loss(cls, loss: str) -> str:
        if loss not in LOSSES:
            raise ValueError(
                f"unknown loss.{nearest(loss, list(LOSSES))} Known: {', '.join(LOSSES)}"
            )
        return loss

    @field_validator("loss_parameters")
    @classmethod
    def _check_parameters(
        cls, parameters: dict[str, float], info: ValidationInfo
    ) -> dict[str, float]:
        loss = info.data.get("loss")
        if loss is None:  # the loss itself is incorrect; this is reported already
            return parameters
        names = list(LOSSES[loss].parameters)
        for name, value in parameters.items():
            if RENAMED_PARAMETERS.get(name) in names:
                raise ValueError(f"{name} is called {RENAMED_PARAMETERS[name]} now")
            if name not in names:
                raise ValueError(
                    f"{loss} has no parameter {name!r}.{nearest(name, names)} "
                    f"It has: {', '.join(names) or 'none'}"
                )
            # These are weights, shares and clips; only the baseline's shift may be negative.
            if value < 0 and name != "delta":
                raise ValueError(f"{loss}'s {name} must be at least 0, got {value}")
            if name == ON_POLICY and value not in (0, 1):
                raise ValueError(
                    f"{loss}'s {name} must be 1 (the policy itself samples) or 0, got {value}"
                )
        return parameters


# Pydantic takes the fields of the last base class first: in the documents, what is learned comes
# before the machine.
class TrainConfig(MachineConfig, LearningConfig):
    """Settings of ``train``; those of the parallel layout are usually in the launch file."""

    runs_on_hosts: ClassVar[bool] = True

    @property
    def micro_batch_num(self) -> int:
        """Micro-batches per step and rank."""
        return self.global_batch_size // (self.data_parallel * self.micro_batch_size)

    @model_validator(mode="after")
    def _layout(self, info: ValidationInfo) -> Self:
        """Report all problems of the layout at once; a recipe's launch file is checked too."""
        context = info.context or {}
        placement, policy = context.get("placement"), context.get("folders", {}).get("policy")
        rows = (self.global_batch_size, self.micro_batch_size)
        found = [
            *batch_problems(
                *rows, self.data_parallel, self.pipeline_stage, self.device, self.devices
            ),
            *(self.device_problems(placement) if placement else ()),
            *self._setting_problems(),
            *self.layout_problems(self.model),
            *(self.weights_problems(policy) if policy else ()),
        ]
        if found:
            raise ValueError("; ".join(dict.fromkeys(found)))
        return self

    def _setting_problems(self) -> Iterator[str]:
        several = self.pipeline_stage > 1 or self.micro_batch_num > 1
        if not self.compressed_mask and several and self.data_parallel > 1:
            # MindSpore would scatter the mask over ranks, and has no scatter operator for uint8.
            yield (
                "compressed_mask false does not compile with several micro-batches and "
                f"data_parallel over 1, got {self.micro_batch_num} and {self.data_parallel}: set "
                "it to true"
            )
        counted = self.recompute if isinstance(self.recompute, list) else None
        # With swap on, MindFormers reads the list as layer indices.
        if counted is not None and not self.swap and len(counted) != self.pipeline_stage:
            yield (
                "recompute must be one number for each pipeline stage, got "
                f"{len(counted)} for {self.pipeline_stage}"
            )
        if self.probe is not None and self.device != "CPU":
            yield (
                f"probe: the local sampler draws on a CPU, got device {self.device}: leave probe "
                "out, and evaluate exported checkpoints with a server"
            )

    def layout_problems(self, shape: ModelShape | None) -> list[str]:
        """Return one sentence for each size that the parallel layout cannot divide evenly."""
        model = {
            **(shape.model_dump() if shape else {}),
            "batch_size": self.micro_batch_size,
            "seq_length": self.seq_length,
            **self.mindformers.get("model", {}).get("model_config", {}),
        }
        return layout_problems(
            model, self.model_parallel, self.pipeline_stage, self.sequence_parallel
        )

    def weights_problems(self, policy: Path) -> list[str]:
        """Check the weights' shape against recipe and layout; return a list of at most one text.

        Args:
            policy: Hugging Face folder of the weights. Without config.json the list is empty.
        """
        try:
            shape = read_shape(policy)
        except StageError as error:
            return [str(error).removesuffix(".")]
        if shape is None:
            return []
        expected_shape = self.model.model_dump(exclude_unset=True) if self.model else {}
        found = [
            f"{key} is {expected} in the recipe, {getattr(shape, key)} in the weights"
            for key, expected in expected_shape.items()
            if getattr(shape, key) != expected
        ]
        found += [*(["correct the stage's model"] if found else []), *self.layout_problems(shape)]
        return [f"{policy}/config.json: {'; '.join(found)}"] if found else []


class ExportConfig(StageConfig):
    """Settings of ``export``: how the trained weights are written."""

    max_shard_bytes: int = Field(5_000_000_000, gt=0)
    """Largest size of a safetensors file, in bytes."""
    logits: bool = False
    """Also compare the logits of transformers and of MindFormers on a probe batch."""
