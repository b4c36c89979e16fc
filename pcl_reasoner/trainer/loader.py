"""The loader that MindFormers builds by name: packed rows in a fixed order, with loss weights.

data_loader:
  type: PclPackedDataLoader
  load_func: load_from_disk
  path: runs/…/pack-1a2b3c4d
  epochs: 5                  # the loader shuffles and repeats, so runner_config.epochs is 1
  seed: 0
  global_batch_size: 128     # rows per step over all ranks
  max_segments: 128
  balance_rows: False        # True: a step's rows are balanced over ranks by attention cost
  micro_batches: 1           # per step of a rank, for balance_rows
  create_compressed_eod_mask: True
"""

from typing import Any

import numpy as np
from mindformers.dataset.dataloader.hf_dataloader import HFDataLoader
from mindformers.tools.register import MindFormerModuleType, MindFormerRegister
from mindspore.dataset import GeneratorDataset

from pcl_reasoner.losses.columns import column_names
from pcl_reasoner.pack.order import DataOrder, balanced_order, batch_totals, data_order
from pcl_reasoner.trainer import rows

_ORDER_KEYS = ("epochs", "global_batch_size", "seed", "max_steps")
_DEFAULTS = {
    "epochs": 1,
    "seed": 0,
    "max_steps": None,
    "max_segments": 128,
    "gradient_scale": 1.0,
    "micro_batches": 1,
}


class OrderedRows:
    """Random access to the rows of all steps, in training order."""

    def __init__(
        self, dataset: Any, order: DataOrder, max_segments: int, compressed: bool, scale: float
    ) -> None:
        counts = rows.counts_of(dataset)
        self.dataset = rows.as_arrays(dataset)
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
        """Number of rows in all steps together."""
        return len(self.order.rows)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        """Return the model's columns for the row at ``index`` in training order."""
        step = int(index) // self.order.global_batch_size
        row = self.dataset[int(self.order.rows[index])]
        weights = (self.segment_weights[step], self.token_weights[step])
        columns = rows.model_row(row, self.max_segments, *weights, self.create_compressed_eod_mask)
        return tuple(columns[name] for name in self.column_names)


@MindFormerRegister.register(MindFormerModuleType.DATASET_LOADER)
class PclPackedDataLoader(HFDataLoader):
    """MindFormers' Hugging Face loader with float columns and a row order fixed in advance."""

    @staticmethod
    def _build_config(**kwargs: Any) -> Any:
        """Return HFDataLoader's configuration, with this class's own keys in ``settings``."""
        ours = {*_DEFAULTS, *_ORDER_KEYS, "balance_rows"} & kwargs.keys()
        settings = {**_DEFAULTS, **{key: kwargs.pop(key) for key in ours}}
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
        """Return the rows in training order as a data set; each of N ranks gets every N-th row."""
        settings = config.settings
        order = data_order(len(dataset), **{key: settings[key] for key in _ORDER_KEYS})
        if settings.get("balance_rows"):
            column = dataset.select_columns("actual_seq_len").with_format("numpy")
            ends = (row["actual_seq_len"] for row in column)
            order = balanced_order(order, ends, num_shards or 1, settings["micro_batches"])
        source = OrderedRows(
            dataset,
            order,
            settings["max_segments"],
            bool(config.create_compressed_eod_mask),
            # Without it, gradients averaged over N ranks (gradients_mean) are N times too small.
            settings["gradient_scale"],
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
