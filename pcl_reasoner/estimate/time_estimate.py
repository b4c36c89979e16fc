"""Estimates the seconds of an optimizer step, by part, from the figures of the chip.

    {"compute": 61.2, "tensor communication": 16.9, "pipeline bubble": 7.3, "optimizer": 0.3, …}

docs/cluster/plan.md has each formula. The number of tensor-parallel collectives equals the count of
the front-end parallel compile. Nothing here was measured on an NPU.
"""

from dataclasses import dataclass, replace

from pcl_reasoner.estimate.chips import Chip
from pcl_reasoner.estimate.memory_estimate import (
    ATTENTION_OUTPUT,
    FLOAT32,
    layer_activations,
    moments_bytes,
    parameters_held,
    sharded_numbers,
    slice_numbers,
    stream_bytes,
)
from pcl_reasoner.estimate.training_size import Training

FORWARD_AND_BACK, ATTENTION_BACK = 3.0, 2.5
"""In units of a forward pass: forward and backward of matrix products, and attention's backward.

A backward pass has two products per forward product; attention's also recomputes its scores."""
PASSES, RECOMPUTE_PASSES = 8, 3
"""Tensor-parallel collectives per layer, and additional ones of a recomputed layer."""
ADAM_PASSES = 7
"""Passes over memory: reads of weight, gradient and two moments, writes of all but the gradient."""


@dataclass(frozen=True)
class Rows:
    """Segment length and fill of the rows.

    Args:
        segment_tokens: Mean tokens per segment.
        filled: Share of a row that is not padding.
    """

    segment_tokens: float
    filled: float


@dataclass(frozen=True)
class StepTime:
    """Seconds per step, by part."""

    compute: float
    tensor_communication: float
    bubble: float
    pipeline_sends: float
    optimizer: float
    swap: float

    @property
    def total(self) -> float:
        """Seconds per step, all parts together."""
        return sum(self.parts().values())

    def parts(self) -> dict[str, float]:
        """Seconds by the name of the part."""
        return {
            "compute": self.compute,
            "tensor communication": self.tensor_communication,
            "pipeline bubble": self.bubble,
            "pipeline sends": self.pipeline_sends,
            "optimizer": self.optimizer,
            "swap": self.swap,
        }


def layer_matrix_numbers(job: Training) -> int:
    """Number of weights in the matrix products of one complete layer."""
    attention = 2 * job.hidden * job.hidden + 2 * job.hidden * job.keys
    return attention + 3 * job.hidden * job.feed_forward


def row_attention(job: Training, rows: Rows) -> float:
    """Operations of one layer's attention, forward over one row: 2 H L^2 per causal segment of L.

    All segments are assumed to be equally long, which gives the lowest cost.
    """
    real = job.row_tokens * rows.filled
    return 2.0 * job.hidden * real * rows.segment_tokens


def stage_seconds(job: Training, chip: Chip, rows: Rows, stage: int) -> tuple[float, float]:
    """Seconds of (compute, tensor communication) per micro-batch in a stage, both passes."""
    layers, recomputed = job.stage_layers[stage], job.recomputed[stage]
    matrix = 2.0 * layer_matrix_numbers(job) * job.micro_tokens / job.tensor / chip.matrix
    attention = row_attention(job, rows) * job.micro_rows / job.tensor / chip.attention
    kept = FORWARD_AND_BACK * matrix + (1 + ATTENTION_BACK) * attention
    compute = layers * kept + recomputed * (matrix + attention)
    if stage == job.stages - 1:
        # Forward, gradients of hidden states and of weights, and recomputed logits of each chunk.
        head = 2.0 * job.vocabulary * job.hidden * job.micro_tokens / job.tensor / chip.matrix
        compute += 4 * head
    return compute, tensor_passes(job, stage) * _tensor_pass(job, chip)


def tensor_passes(job: Training, stage: int) -> float:
    """Tensor-parallel collectives of a micro-batch's activations, forward and backward.

    The unit is one AllGather or ReduceScatter in the compute type. An AllReduce counts as two. In
    float32 an operation counts 4 / (bytes of the compute type) times. Sequence parallelism does
    not change the count: without it, two AllReduces replace four units.

    Source: the output of `pclr-ms compile` (docs/cluster/parallel_compile.md).
    """
    in_float32 = FLOAT32 / job.compute_bytes
    passes = float(job.stage_layers[stage] * PASSES + job.recomputed[stage] * RECOMPUTE_PASSES)
    if stage == 0:
        passes += 2 * 2 * in_float32  # the embedding's AllReduce in float32, forward and backward
    if stage == job.stages - 1:
        passes += 2 * in_float32  # the final norm's output in float32, forward and backward
    return passes


def _tensor_pass(job: Training, chip: Chip) -> float:
    """Seconds of one AllGather or ReduceScatter of a micro-batch's activations, in a ring."""
    activations = job.micro_tokens * job.hidden * job.compute_bytes
    rate = chip.node if job.tensor <= chip.devices_per_node else chip.network
    return activations * (job.tensor - 1) / job.tensor / rate


def step_time(job: Training, chip: Chip, rows: Rows) -> StepTime:
    """Estimate one optimizer step: forward and backward passes alternate, nothing overlaps.

    Args:
        job: The training.
        chip: The device.
        rows: Segment length and fill of the rows.
    """
    by_stage = [stage_seconds(job, chip, rows, stage) for stage in range(job.stages)]
    compute, communication = max(by_stage, key=sum)
    sends = 2 * stream_bytes(job) / chip.network if job.stages > 1 else 0.0
    return StepTime(
        compute=job.micro_batches * compute,
        tensor_communication=job.micro_batches * communication,
        bubble=(job.stages - 1) * (compute + communication),
        pipeline_sends=job.micro_batches * sends,
        optimizer=max(_optimizer(job, chip, stage) for stage in range(job.stages)),
        swap=max(_swap(job, chip, stage, by_stage[stage][0]) for stage in range(job.stages)),
    )


def _optimizer(job: Training, chip: Chip, stage: int) -> float:
    """Seconds of AdamW's memory passes and of the collectives between data-parallel ranks."""
    local = ADAM_PASSES * FLOAT32 * parameters_held(job, stage) / chip.memory
    if job.data == 1:
        return local
    rate = chip.node if job.data * job.tensor <= chip.devices_per_node else chip.network
    sharded = sharded_numbers(job, stage)
    complete = slice_numbers(job, stage) - sharded
    # Sharded: ReduceScatter in float32, AllGather in the compute type. Complete: an AllReduce.
    sent = sharded * (FLOAT32 + job.compute_bytes) + complete * 2 * FLOAT32
    return local + sent * (job.data - 1) / job.data / rate


def _swap(job: Training, chip: Chip, stage: int, compute: float) -> float:
    """Seconds of swapping that delay a step.

    Moments are moved in and out. For attention's outputs, only the part that the stage's compute
    does not hide counts.
    """
    seconds = 2 * moments_bytes(job, stage) / chip.swap if job.swap_optimizer else 0.0
    kept = job.stage_layers[stage] - job.recomputed[stage]
    if job.swap_attention and kept:
        moved = 2 * kept * layer_activations(job)[ATTENTION_OUTPUT] / chip.swap
        seconds += job.micro_batches * max(0.0, moved - compute)
    return seconds


def model_operations(job: Training, rows: Rows) -> float:
    """Operations per row as MFU counts them, without padding and recomputation."""
    numbers = job.layers * layer_matrix_numbers(job) + job.vocabulary * job.hidden
    real = job.row_tokens * rows.filled
    forward = 2.0 * numbers * real + job.layers * row_attention(job, rows)
    return FORWARD_AND_BACK * forward


def mfu(job: Training, chip: Chip, rows: Rows, seconds: float) -> float:
    """Share of all devices' peak that a step uses if it takes ``seconds``."""
    return job.global_rows * model_operations(job, rows) / (job.devices * chip.peak * seconds)


def share_for(job: Training, chip: Chip, rows: Rows, seconds: float) -> float | None:
    """The share of the chip's peak at which matrix products make a step take ``seconds``.

    Attention's share is scaled in proportion. None if a step takes longer even with matrix
    products at their full peak.
    """
    low, high = 1e-4, 1.0

    def step(share: float) -> float:
        attention = share * chip.attention / chip.matrix
        slower = replace(chip, matrix=share * chip.peak, attention=attention * chip.peak)
        return step_time(job, slower, rows).total

    if step(high) > seconds:
        return None
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if step(middle) > seconds else (low, middle)
    return high
