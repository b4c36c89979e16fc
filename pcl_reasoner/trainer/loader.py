"""The loader that MindFormers builds by name: packed rows in a fixed order, with their weights.

data_loader:
  type: PclPackedDataLoader
  load_func: load_from_disk
  path: runs/…/pack-1a2b3c4d
  epochs: 5                  # in one pass, each shuffled anew: runner_config.epochs is 1
  seed: 0
  global_batch_size: 128     # rows per step over all ranks
  max_segments: 128
  balance_rows: False        # True: a step's rows are balanced over ranks by attention cost
  create_compressed_eod_mask: True
"""

from typing import Any

import numpy as np
from mindformers.dataset.dataloader.hf_dataloader import HFDataLoader
from mindformers.tools.register import MindFormerModuleType, MindFormerRegister
from mindspore.dataset import GeneratorDataset

from pcl_reasoner.losses.columns import column_names
from pcl_reasoner.train.order import DataOrder, balanced_order, batch_totals, data_order
from pcl_reasoner.trainer import rows

_OUR_KEYS = (
    *("epochs", "seed", "global_batch_size", "max_segments", "max_steps", "gradient_scale"),
    "balance_rows",
)


class OrderedRows:
    """Random access to the rows of all steps, in their order."""

    def __init__(
        self, dataset: Any, order: DataOrder, max_segments: int, compressed: bool, scale: float
    ) -> None:
        counts = np.array([rows.trained_counts(row) for row in dataset], np.int64).reshape(-1, 2)
        self.dataset = dataset
        self.order = order
        self.max_segments = max_segments
        # MindFormers reads this attribute to know the kind of mask in a batch.
        self.create_compressed_eod_mask = compressed
        self.column_names = column_names(compressed)
        segments = np.maximum(batch_totals(order, counts[:, 0]), 1)
        tokens = np.maximum(batch_totals(order, counts[:, 1]), 1)
        self.segment_weights = scale / segments
        self.token_weights = scale / tokens

    def __len__(self) -> int:
        """Rows of all steps."""
        return len(self.order.rows)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        """The model's columns for the row at one index of the order."""
        step = int(index) // self.order.global_batch_size
        columns = rows.model_row(
            self.dataset[int(self.order.rows[index])],
            self.max_segments,
            self.segment_weights[step],
            self.token_weights[step],
            self.create_compressed_eod_mask,
        )
        return tuple(columns[name] for name in self.column_names)


@MindFormerRegister.register(MindFormerModuleType.DATASET_LOADER)
class PclPackedDataLoader(HFDataLoader):
    """MindFormers' Hugging Face loader with float columns and an order fixed in advance."""

    @staticmethod
    def _build_config(**kwargs: Any) -> Any:
        """Separate our keys; the others are arguments of the load function."""
        settings = {key: kwargs.pop(key) for key in _OUR_KEYS if key in kwargs}
        kwargs.pop("mock_config", None)
        if kwargs.get("load_func") == "load_from_disk" and "path" in kwargs:
            kwargs["dataset_path"] = kwargs.pop("path")
        config = HFDataLoader._build_config(**kwargs)
        config.settings = settings
        return config

    @classmethod
    def wrap_dataset(
        cls,
        config: Any,
        dataset: Any,
        shard_id: int | None = None,
        num_shards: int | None = None,
        python_multiprocessing: bool = False,
        num_parallel_workers: int = 1,
    ) -> GeneratorDataset:
        """Wrap the packed rows; each of N ranks takes every N-th row: N · batch rows per step."""
        settings = config.settings
        order = data_order(
            len(dataset),
            int(settings.get("epochs", 1)),
            int(settings["global_batch_size"]),
            int(settings.get("seed", 0)),
            settings.get("max_steps"),
        )
        if settings.get("balance_rows"):
            ends = (row["actual_seq_len"] for row in dataset.select_columns("actual_seq_len"))
            order = balanced_order(order, ends, num_shards or 1)
        source = OrderedRows(
            dataset,
            order,
            int(settings.get("max_segments", 128)),
            bool(config.create_compressed_eod_mask),
            # If ranks average their gradients (gradients_mean), the sum is N times too small.
            float(settings.get("gradient_scale", 1.0)),
        )
        return GeneratorDataset(
            source,
            column_names=source.column_names,
            num_parallel_workers=num_parallel_workers,
            python_multiprocessing=python_multiprocessing,
            shard_id=shard_id,
            num_shards=num_shards,
            shuffle=False,
        )
