"""Settings of the machine that trains, and of the parallel layout on it.

A launch file usually has them:

    train: {data_parallel: 8, model_parallel: 8, pipeline_stage: 2, sequence_parallel: true}
"""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from pcl_reasoner.core.files import shipped
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.stage import NOT_HASHED, StageConfig
from pcl_reasoner.train.layout import device_problems


class MachineConfig(StageConfig):
    """Devices, precision, parallel layout and memory: the settings that any training has."""

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

    @field_validator("parallel_speed_up_json")
    @classmethod
    def _found(cls, name: str) -> str:
        if name and not Path(name).is_file() and not (shipped("launch") / name).is_file():
            raise ValueError(f"no such file: {name!r}")
        return name

    def device_problems(self, placement: Placement) -> list[str]:
        """Return one sentence if there are not as many ranks as devices, else an empty list."""
        layout = (self.data_parallel, self.model_parallel, self.pipeline_stage)
        return device_problems(*layout, len(placement.hosts), placement.devices_per_host)
