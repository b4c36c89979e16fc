"""Computes the sizes that follow from a train stage's settings and its packed rows.

{"rows": 207272, "rows_per_rank": 16, "steps": 6477, "warmup_steps": 323, "mock_rows": 103636, …}
"""

from dataclasses import dataclass

from pcl_reasoner.losses.columns import column_names
from pcl_reasoner.train.config import TrainConfig


@dataclass(frozen=True)
class Sizes:
    """The sizes that follow from settings and rows.

    Args:
        rows: Packed rows per epoch.
        rows_per_rank: Rows per data-parallel rank and step.
        micro_batches: Micro-batches per rank and step.
        steps_per_epoch: Rows divided by rows per step; a remainder goes into the next epoch.
        steps: Optimizer steps in all.
        left_over: Rows of all epochs that no step uses, because they do not fill a last step or
            come after max_steps.
        warmup_steps: Steps in which the learning rate rises.
        mock_rows: MindFormers' ``mock_config.size``: rows of all epochs, per data-parallel rank.
        dataset_strategy: How every column of a batch is divided: its rows are divided among ranks,
            its other axes are not divided.
    """

    rows: int
    rows_per_rank: int
    micro_batches: int
    steps_per_epoch: float
    steps: int
    left_over: int
    warmup_steps: int
    mock_rows: int
    dataset_strategy: list[list[int]]


def derived_sizes(config: TrainConfig, rows: int) -> Sizes:
    """Compute the sizes.

    Args:
        config: The stage's settings.
        rows: Packed rows per epoch.
    """
    steps = rows * config.epochs // config.global_batch_size
    if config.max_steps is not None:
        steps = min(steps, config.max_steps)
    return Sizes(
        rows=rows,
        rows_per_rank=config.global_batch_size // config.data_parallel,
        micro_batches=config.micro_batch_num,
        steps_per_epoch=rows / config.global_batch_size,
        steps=steps,
        left_over=rows * config.epochs - steps * config.global_batch_size,
        # Rounded down, as in MindFormers' learning rate schedules.
        warmup_steps=int(steps * config.warmup_ratio),
        mock_rows=mock_rows(config, rows),
        dataset_strategy=dataset_strategy(config),
    )


def mock_rows(config: TrainConfig, rows: int) -> int:
    """Return the rows of all epochs per data-parallel rank, as in PCL-Reasoner V1's YAML."""
    return rows * config.epochs // config.data_parallel


def dataset_strategy(config: TrainConfig) -> list[list[int]]:
    """Return how every column of a batch is divided among ranks: only along its rows."""
    shards = [[config.data_parallel, 1] for _ in column_names(config.compressed_mask)]
    if not config.compressed_mask:
        # The dense mask has two more axes: for heads, and for a second token.
        shards[-1] = [config.data_parallel, 1, 1, 1]
    return shards


def gradient_scale(config: TrainConfig) -> float:
    """Return the factor for the loss weights that cancels an average computed by MindFormers.

    The weights of a global batch sum to one, so its loss is a mean already. But on a CPU, gradients
    are averaged over data-parallel ranks. On Ascend, MFPipelineWithLossScaleCell divides by the
    number of micro-batches, in a pipeline and where gradients are accumulated without one.
    """
    return float(config.data_parallel if config.device == "CPU" else config.micro_batch_num)


def size_lines(sizes: Sizes, config: TrainConfig) -> list[str]:
    """Return a description of the sizes, as lines of text.

    Args:
        sizes: The result of `derived_sizes`.
        config: The stage's settings.
    """
    limit = f", max_steps {config.max_steps:,}" if config.max_steps else ""
    shards = [str(shard) for shard in sizes.dataset_strategy]
    kinds = (f"{shards.count(kind)} x {kind}" for kind in dict.fromkeys(shards))
    return [
        f"{config.global_batch_size:,} rows per step: {sizes.rows_per_rank:,} on each "
        f"data-parallel rank, in {sizes.micro_batches:,} micro-batches of "
        f"{config.micro_batch_size:,}",
        f"{sizes.steps_per_epoch:,.1f} steps per epoch, {config.epochs} epochs{limit}: "
        f"{sizes.steps:,} steps, {sizes.left_over:,} rows left over",
        f"{sizes.warmup_steps:,} warm-up steps; a mock size of {sizes.mock_rows:,} rows per rank",
        f"dataset_strategy, per column: {', '.join(kinds)}",
    ]
