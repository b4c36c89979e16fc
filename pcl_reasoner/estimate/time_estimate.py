"""Estimates the seconds of an optimizer step, by part, from the chip's speed.

    {"compute": 61.2, "tensor communication": 16.9, "pipeline bubble": 7.3, "optimizer": 0.3, …}

docs/cluster/plan.md has each formula. The number of tensor-parallel collectives is the one that the
front-end parallel compile shows. Nothing here was measured on an NPU.
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
"""Costs in units of one forward pass: matrix products, forward and backward; attention, backward.

A backward pass has two products per forward product; attention also recomputes its scores."""
PASSES, RECOMPUTE_PASSES = 8, 3
"""Tensor-parallel collectives per layer, and additional ones of a recomputed layer."""
ADAM_PASSES = 7
"""Passes over memory: reads of weight, gradient and two moments, writes of all but the gradient."""
ADDING_PASSES = 3
"""Passes over memory to add a micro-step's gradient to the round's: two reads and a write."""


@dataclass(frozen=True)
class Rows:
    """Mean segment length, and share of a row that is not padding.

    Args:
        segment_tokens: Mean tokens per segment.
        filled: Share of a row that is not padding.
    """

    segment_tokens: float
    filled: float


def layer_matrix_numbers(job: Training) -> int:
    """Number of weights in the matrix products of one complete layer."""
    attention = 2 * job.hidden * job.hidden + 2 * job.hidden * job.keys
    return attention + 3 * job.hidden * job.feed_forward


def row_attention(job: Training, rows: Rows) -> float:
    """Operations of one layer's attention in the forward pass of one row.

    A causal segment of L tokens takes 2 H L^2 operations; H is the hidden size.
    All segments are assumed to be equally long, which gives the lowest cost.
    """
    real = job.row_tokens * rows.filled
    return 2.0 * job.hidden * real * rows.segment_tokens


def stage_seconds(job: Training, chip: Chip, rows: Rows, stage: int) -> tuple[float, float]:
    """(compute, tensor communication) seconds of a stage per micro-batch, forward and backward."""
    layers, recomputed = job.stage_layers[stage], job.recomputed[stage]
    matrix = 2.0 * layer_matrix_numbers(job) * job.micro_tokens / job.tensor / chip.matrix
    attention = row_attention(job, rows) * job.micro_rows / job.tensor / chip.attention
    kept = FORWARD_AND_BACK * matrix + (1 + ATTENTION_BACK) * attention
    compute = layers * kept + recomputed * (matrix + attention)
    if stage == job.stages - 1:
        # Forward, gradients of hidden states and of weights, and recomputed logits of each chunk.
        head = 2.0 * job.vocabulary * job.hidden * job.micro_tokens / job.tensor / chip.matrix
        compute += 4 * head
    # One AllGather or ReduceScatter of a micro-batch's activations, in a ring.
    rate = chip.node if job.tensor <= chip.devices_per_node else chip.network
    activations = job.micro_tokens * job.hidden * job.compute_bytes
    seconds = activations * (job.tensor - 1) / job.tensor / rate
    return compute, tensor_passes(job, stage) * seconds


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


def step_time(job: Training, chip: Chip, rows: Rows) -> dict[str, float]:
    """Estimate the seconds of one optimizer step, by part.

    Assumed: forward and backward passes alternate; computation waits for all communication.

    Args:
        job: The training.
        chip: The device.
        rows: Segment length and fill of the rows.
    """
    by_stage = [stage_seconds(job, chip, rows, stage) for stage in range(job.stages)]
    compute, communication = max(by_stage, key=sum)
    sends = 2 * stream_bytes(job) / chip.network if job.stages > 1 else 0.0
    return {
        "compute": job.micro_batches * compute,
        "tensor communication": job.micro_batches * communication,
        "pipeline bubble": (job.stages - 1) * (compute + communication),
        "pipeline sends": job.micro_batches * sends,
        "optimizer": max(_optimizer(job, chip, stage) for stage in range(job.stages)),
        "swap": max(_swap(job, chip, stage, one[0]) for stage, one in enumerate(by_stage)),
    }


def update_seconds(job: Training, chip: Chip) -> float:
    """Seconds of the one update of a round: AdamW, and moments that are moved in and out."""
    return max(_adam(job, chip, stage) + _moments(job, chip, stage) for stage in range(job.stages))


def _adam(job: Training, chip: Chip, stage: int) -> float:
    return ADAM_PASSES * FLOAT32 * parameters_held(job, stage) / chip.memory


def _moments(job: Training, chip: Chip, stage: int) -> float:
    return 2 * moments_bytes(job, stage) / chip.swap if job.swap_optimizer else 0.0


def _optimizer(job: Training, chip: Chip, stage: int) -> float:
    """Seconds of AdamW's reads and writes, and of the collectives between data-parallel ranks.

    A micro-step of a round has the collectives, and adds its gradient to the round's.
    """
    local = _adam(job, chip, stage)
    if job.by_rounds:
        local *= ADDING_PASSES / ADAM_PASSES
    if job.data == 1:
        return local
    rate = chip.node if job.data * job.tensor <= chip.devices_per_node else chip.network
    sharded = sharded_numbers(job, stage)
    complete = slice_numbers(job, stage) - sharded
    # Sharded: ReduceScatter in float32, AllGather in the compute type. Complete: an AllReduce.
    sent = sharded * (FLOAT32 + job.compute_bytes) + complete * 2 * FLOAT32
    return local + sent * (job.data - 1) / job.data / rate


def _swap(job: Training, chip: Chip, stage: int, compute: float) -> float:
    """Seconds by which swapping delays a step.

    Moments are moved in and out; for a round only once, in the update. Moving attention's outputs
    overlaps with the stage's computation, so only the time by which it is longer counts.
    """
    seconds = 0.0 if job.by_rounds else _moments(job, chip, stage)
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
    """Find the share of the chip's peak that matrix products reach if a step takes ``seconds``.

    Attention's share changes in proportion. None if a step is estimated to take longer even with
    matrix products at their full peak.
    """
    low, high = 1e-4, 1.0

    def step(share: float) -> float:
        attention = share * chip.attention / chip.matrix
        slower = replace(chip, matrix=share * chip.peak, attention=attention * chip.peak)
        return sum(step_time(job, slower, rows).values())

    if step(high) > seconds:
        return None
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if step(middle) > seconds else (low, middle)
    return high
