"""Sizes that follow from a train stage's settings and its rows, so that nobody works them out.

{"rows": 207272, "rows_per_rank": 16, "steps": 6477, "warmup_steps": 323, "mock_rows": 103636, …}
"""

from __future__ import annotations

from dataclasses import dataclass

from pcl_reasoner.train.config import TrainConfig


@dataclass(frozen=True)
class Sizes:
    """What follows from settings and rows.

    Args:
        rows: Packed rows, an epoch.
        rows_per_rank: Of a data-parallel rank, a step.
        micro_batches: In which a rank takes them.
        steps_per_epoch: Rows over rows a step; a rest goes into the next epoch.
        steps: Optimizer steps in all.
        left_over: Rows of all epochs that no step takes: a last part of a step, or after max_steps.
        warmup_steps: Steps in which the learning rate rises.
        mock_rows: MindFormers' ``mock_config.size``: rows of all epochs, of a data-parallel rank.
        dataset_strategy: How every column of a batch is cut: over ranks, then not at all.
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
    """Work the sizes out.

    Args:
        config: The stage's settings.
        rows: Packed rows, an epoch.
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
        # As MindFormers' learning rate schedules cut it off.
        warmup_steps=int(steps * config.warmup_ratio),
        mock_rows=mock_rows(config, rows),
        dataset_strategy=dataset_strategy(config),
    )


def mock_rows(config: TrainConfig, rows: int) -> int:
    """Rows of all epochs that a data-parallel rank has, as V1's own YAML counts them."""
    return rows * config.epochs // config.data_parallel


def dataset_strategy(config: TrainConfig) -> list[list[int]]:
    """How every column of a batch is cut over ranks: its rows, and nothing else."""
    from pcl_reasoner.losses.columns import column_names

    shards = [[config.data_parallel, 1] for _ in column_names(config.compressed_mask)]
    if not config.compressed_mask:
        # The dense mask has a head's and a second token's axis, too.
        shards[-1] = [config.data_parallel, 1, 1, 1]
    return shards


def size_lines(sizes: Sizes, config: TrainConfig) -> list[str]:
    """The sizes in words.

    Args:
        sizes: As `derived_sizes` gives them.
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
        f"{sizes.warmup_steps:,} warm-up steps; a mock size of {sizes.mock_rows:,} rows a rank",
        f"dataset_strategy, a column each: {', '.join(kinds)}",
    ]
