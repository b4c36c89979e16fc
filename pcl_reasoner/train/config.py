"""Settings of the train and export stages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.files import nearest
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.stage import NOT_HASHED, StageConfig
from pcl_reasoner.inference.settings import SamplingConfig
from pcl_reasoner.losses import LOSSES, RENAMED_PARAMETERS
from pcl_reasoner.train.layout import batch_problems, device_problems, layout_problems
from pcl_reasoner.train.stopping import Stop
from pcl_reasoner.weights.model_config import ModelShape, read_config_json


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

    @field_validator("engine")
    @classmethod
    def _embedded(cls, engine: str) -> str:
        if engine != "local":
            raise ValueError(
                "the training process answers itself, by the local sampler: leave engine out, "
                "or probe null and evaluate exported checkpoints with a server"
            )
        return engine


class TrainConfig(StageConfig):
    """Settings of ``train``: what is trained and how; the launch file has the parallel layout."""

    runs_on_hosts: ClassVar[bool] = True

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
    learning_rate_end: float = Field(ge=0)
    warmup_ratio: float = Field(ge=0, lt=1)
    """Share of all steps in which the learning rate rises."""
    global_batch_size: int = Field(gt=0)
    """Packed rows per optimizer step, over all ranks."""
    micro_batch_size: int = Field(1, gt=0)
    """Packed rows per rank and micro-batch."""
    seq_length: int = Field(gt=0)
    """Tokens per packed row."""
    max_segments: int = Field(128, gt=0)
    """Limit on the segments per row: the width of the compressed mask."""
    balance_rows: bool = False
    """Distribute the rows of each step to the ranks so that their attention costs are even."""
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = Field(1e-8, gt=0)
    weight_decay: float = Field(0.0, ge=0)
    clip_grad: float | None = Field(1.0, gt=0)
    """Largest global gradient norm; null for no clipping."""
    checkpoint_steps: int = Field(100, gt=0)
    keep_checkpoints: int = Field(10, gt=0)
    model: ModelShape | None = None
    """The expected shape; it must agree with the weights."""
    p_drop_warning: float = Field(0.02, ge=0)
    """Warn when the mean p of correct responses falls by more than this."""
    stop_if: Annotated[Stop, NOT_HASHED] = Stop()
    """Rules that end a run before its last step. They are not in the fingerprint: with other rules,
    a run resumes from its last checkpoint."""
    entropy: bool = True
    """Compute the entropy of every token for metrics.jsonl."""
    logits_chunk_tokens: int | None = Field(None, gt=0)
    """Tokens per rank whose logits exist at a time; null for all, which is faster if these are few."""
    probe: Probe | None = None
    """Problems that are answered at intervals during training; only on a CPU."""

    device: Literal["CPU", "Ascend"] = "Ascend"
    precision: Literal["float32", "bfloat16", "float16"] = "bfloat16"
    """Compute type; parameters, norms, softmax and rotary embedding stay float32."""
    loss_scale: int = Field(4096, gt=0)
    """Initial loss scale, for float16."""
    compressed_mask: bool = True
    """End-of-document-compressed mask (TND attention); false for one dense mask per row."""
    data_parallel: int = Field(1, gt=0)
    model_parallel: int = Field(1, gt=0)
    pipeline_stage: int = Field(1, gt=0)
    sequence_parallel: bool = False
    optimizer_shard: bool = False
    gradient_aggregation_group: int = Field(4, gt=0)
    recompute: bool | int | list[int] = False
    """MindFormers' recompute: all layers, layers per pipeline stage, or a number for each stage."""
    select_recompute: bool | list[str] = False
    swap: bool = False
    """Swap activations to host memory."""
    swap_optimizer: bool = False
    """Swap optimizer states to host memory."""
    max_device_memory: str = "58GB"
    parallel_speed_up_json: str = ""
    mindformers: dict[str, Any] = Field(default_factory=dict)
    """Native MindFormers keys, merged last and unchanged."""

    @property
    def devices(self) -> int:
        """Number of ranks: data × tensor × pipeline."""
        return self.data_parallel * self.model_parallel * self.pipeline_stage

    @property
    def micro_batch_num(self) -> int:
        """Micro-batches per step and rank."""
        return self.global_batch_size // (self.data_parallel * self.micro_batch_size)

    @field_validator("loss")
    @classmethod
    def _known_loss(cls, loss: str) -> str:
        if loss not in LOSSES:
            raise ValueError(
                f"no such loss.{nearest(loss, list(LOSSES))} Known: {', '.join(LOSSES)}"
            )
        return loss

    @field_validator("loss_parameters")
    @classmethod
    def _known_parameters(
        cls, parameters: dict[str, float], info: ValidationInfo
    ) -> dict[str, float]:
        loss = info.data.get("loss")
        if loss is None:  # the loss itself is incorrect; this is reported already
            return parameters
        known = LOSSES[loss]
        for name, value in parameters.items():
            if RENAMED_PARAMETERS.get(name) in known.parameters:
                raise ValueError(f"{name} is called {RENAMED_PARAMETERS[name]} now")
            if name not in known.parameters:
                names = list(known.parameters)
                raise ValueError(
                    f"{loss} has no parameter {name!r}.{nearest(name, names)} "
                    f"It has: {', '.join(names) or 'none'}"
                )
            # These are weights, shares and clips; only the baseline's shift may be negative.
            if value < 0 and name != "delta":
                raise ValueError(f"{loss}'s {name} must be at least 0, got {value}")
        return parameters

    @model_validator(mode="after")
    def _layout(self, info: ValidationInfo) -> TrainConfig:
        """Report all problems of the layout at once; in a recipe, those with its launch file, too."""
        around = info.context or {}
        placement, policy = around.get("placement"), around.get("folders", {}).get("policy")
        found = [
            *batch_problems(
                self.global_batch_size,
                self.micro_batch_size,
                self.data_parallel,
                self.pipeline_stage,
                self.device,
            ),
            *(self._device_problems(placement) if placement else ()),
            *self._setting_problems(),
            *self.layout_problems(self.model),
            *(self.weights_problems(policy) if policy else ()),
        ]
        if found:
            raise ValueError("; ".join(dict.fromkeys(found)))
        return self

    def _device_problems(self, placement: Placement) -> list[str]:
        layout = (self.data_parallel, self.model_parallel, self.pipeline_stage)
        return device_problems(*layout, len(placement.hosts), placement.devices_per_host)

    def _setting_problems(self) -> Iterator[str]:
        if not self.compressed_mask and self.pipeline_stage > 1 and self.data_parallel > 1:
            # MindSpore would scatter the mask over the ranks, but its operator does not take uint8.
            yield (
                "compressed_mask false does not compile with pipeline_stage and data_parallel over "
                f"1, got {self.pipeline_stage} and {self.data_parallel}: set it to true"
            )
        counted = self.recompute if isinstance(self.recompute, list) else None
        # With swap on, MindFormers takes the list as the indices of layers.
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
        """List what the parallel layout cannot divide in this shape, one sentence each."""
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
        """List how the weights contradict the recipe or cannot be divided; empty before they exist.

        Args:
            policy: Hugging Face folder of the weights.
        """
        try:
            value = read_config_json(policy)
        except StageError as error:
            return [str(error).removesuffix(".")]
        if value is None:
            return []
        own = ModelShape(**value)
        given = self.model.model_dump(exclude_unset=True) if self.model else {}
        wrong = [
            f"{key} is {expected} in the recipe, {getattr(own, key)} in the weights"
            for key, expected in given.items()
            if getattr(own, key) != expected
        ]
        found = [*wrong, *(["mend train.model"] if wrong else []), *self.layout_problems(own)]
        return [f"{policy}/config.json: {'; '.join(found)}"] if found else []


class ExportConfig(StageConfig):
    """Settings of ``export``: how the trained weights are written."""

    max_shard_bytes: int = Field(5_000_000_000, gt=0)
    """Largest size of a safetensors file, in bytes."""
    logits: bool = False
    """Also compare the logits of transformers and of MindFormers on a probe batch."""
