"""Settings of the train and export stages."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.files import nearest, shipped
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.stage import NOT_HASHED, StageConfig
from pcl_reasoner.inference.settings import SamplingConfig
from pcl_reasoner.losses import LOSSES, RENAMED_PARAMETERS
from pcl_reasoner.sandbox.config import SandboxConfig
from pcl_reasoner.train.layout import batch_problems, device_problems, layout_problems
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


class TrainConfig(StageConfig):
    """Settings of ``train``; those of the parallel layout are usually in the launch file."""

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

    device: Literal["CPU", "Ascend"] = "Ascend"
    """MindSpore's device target."""
    precision: Literal["float32", "bfloat16", "float16"] = "bfloat16"
    """Compute type; parameters, norms, softmax and rotary embedding stay float32."""
    loss_scale: int = Field(4096, gt=0)
    """Initial loss scale, for float16."""
    compressed_mask: bool = True
    """End-of-document-compressed mask (TND attention); false for one dense mask per row."""
    data_parallel: int = Field(1, gt=0)
    """Data-parallel size."""
    model_parallel: int = Field(1, gt=0)
    """Tensor-parallel size."""
    pipeline_stage: int = Field(1, gt=0)
    """Pipeline stages."""
    sequence_parallel: bool = False
    """True: activations between layers are split along the sequence."""
    optimizer_shard: bool = False
    """True: optimizer states are split over the data-parallel ranks."""
    gradient_aggregation_group: int = Field(4, gt=0)
    """Size of the groups in which communications of gradients are fused."""
    recompute: bool | int | list[int] = False
    """MindFormers' recompute: true for all layers, a number of layers per pipeline stage, or a list
    with one number for each stage."""
    select_recompute: bool | list[str] = False
    """MindFormers' selective recomputation: on or off, or a list of operators."""
    swap: bool = False
    """Swap activations to host memory."""
    swap_optimizer: bool = False
    """Swap optimizer states to host memory."""
    max_device_memory: str = "58GB"
    """Device memory that MindSpore may use."""
    parallel_speed_up_json: Annotated[str, NOT_HASHED] = ""
    """MindSpore's parallel_speed_up.json, by path or shipped name; empty: none."""
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
        return parameters

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

    def device_problems(self, placement: Placement) -> list[str]:
        """Return one sentence if there are not as many ranks as devices, else an empty list."""
        layout = (self.data_parallel, self.model_parallel, self.pipeline_stage)
        return device_problems(*layout, len(placement.hosts), placement.devices_per_host)

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

    @field_validator("parallel_speed_up_json")
    @classmethod
    def _found(cls, name: str) -> str:
        if name and not Path(name).is_file() and not (shipped("launch") / name).is_file():
            raise ValueError(f"no such file: {name!r}")
        return name

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
        found += [*(["correct train.model"] if found else []), *self.layout_problems(shape)]
        return [f"{policy}/config.json: {'; '.join(found)}"] if found else []


class ExportConfig(StageConfig):
    """Settings of ``export``: how the trained weights are written."""

    max_shard_bytes: int = Field(5_000_000_000, gt=0)
    """Largest size of a safetensors file, in bytes."""
    logits: bool = False
    """Also compare the logits of transformers and of MindFormers on a probe batch."""
