"""Builds complete tensors from the slices that the ranks of a distributed run saved.

    checkpoint/rank_0/policy_rank_0-1_20.safetensors    a rank's slices, MindFormers' names
    strategy/ckpt_strategy_rank_0.ckpt                  how MindSpore sliced every tensor

Under tensor and pipeline parallelism and optimizer sharding, a rank holds a slice of some tensors.
The layout of a tensor over the N ranks of a pipeline stage consists of a device matrix, e.g. [2, 4]
for data x tensor parallelism, and, for each dimension of the tensor, the axes of the matrix that
split it. Axes are counted from the last. Optimizer sharding splits the slice again along its first
dimension into ``size`` parts; ``step`` is the distance in ranks between two successive parts:

    part = rank // step % size
"""

import math
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.weights.stream import (
    CHUNK_BYTES,
    StoredTensor,
    is_complete,
    read_files,
    weight_files,
)


@dataclass(frozen=True)
class Layout:
    """Describes how a tensor is sliced over the ranks of one pipeline stage.

    Args:
        devices: The device matrix; its product is the number of ranks of the stage.
        axes: For each dimension of the tensor, the axes of the matrix that split it, outermost
            first, counted from the matrix's last axis; empty for a dimension that is not split.
        step: Distance in ranks between two consecutive optimizer shards.
        size: Number of optimizer shards; 1 without optimizer sharding.
    """

    devices: tuple[int, ...]
    axes: tuple[tuple[int, ...], ...]
    step: int = 0
    size: int = 1

    @property
    def ranks(self) -> int:
        """Number of ranks of the pipeline stage."""
        return math.prod(self.devices)

    @property
    def parts(self) -> tuple[int, ...]:
        """Number of parts of each dimension."""
        found = [math.prod(self.devices[-1 - axis] for axis in axes) for axes in self.axes]
        return (found[0] * self.size, *found[1:]) if found else ()

    def part_of(self, rank: int) -> tuple[int, ...]:
        """Return the index, in each dimension, of the part that a rank holds.

        Args:
            rank: Rank within the stage, from 0.
        """
        coordinates = []
        remainder = rank
        for devices in reversed(self.devices):
            remainder, coordinate = divmod(remainder, devices)
            coordinates.append(coordinate)
        found = []
        for axes in self.axes:
            part = 0
            for axis in axes:
                part = part * self.devices[-1 - axis] + coordinates[axis]
            found.append(part)
        shard = rank // self.step % self.size if self.size > 1 else 0
        return (found[0] * self.size + shard, *found[1:]) if found else ()


Layouts = Mapping[str, Mapping[int, Layout]]
"""Name of a tensor -> pipeline stage -> layout."""


def read_layouts(folder: Path) -> Layouts:
    """Read the strategy files that MindSpore wrote during compilation.

    Args:
        folder: ``strategy`` in MindFormers' output folder, with files of all pipeline stages.

    Raises:
        StageError: A file is damaged, or slices a tensor into uneven parts.
    """
    import mindspore as ms

    with tempfile.TemporaryDirectory() as temporary:
        merged = str(Path(temporary) / "merged.ckpt")
        try:
            ms.merge_pipeline_strategys(str(folder), merged)
            found = ms.build_searched_strategy(merged)
        except (TypeError, ValueError) as error:
            raise StageError(
                f"{folder}: cannot read the strategy files ({error}). Copy the folder again."
            ) from error
    layouts: dict[str, dict[int, Layout]] = {}
    for key, value in found.items():
        stage, _, name = key.partition("-")
        layouts.setdefault(name, {})[int(stage)] = _layout(value, f"{folder}: {name}")
    return layouts


def _layout(value: Any, where: str) -> Layout:
    """Convert MindSpore's ParallelLayouts to a Layout."""
    if value.field or any(part.dim for part in value.param_split_shape):
        raise StageError(f"{where}: sliced into uneven parts; only even parts can be merged.")
    devices = tuple(value.dev_matrix[0].dim)
    # One list with one axis per dimension; if several axes split a dimension, a list per dimension.
    maps = [tuple(part.dim) for part in value.tensor_map]
    dimensions = [(axis,) for axis in maps[0]] if len(maps) == 1 else maps
    axes = tuple(tuple(axis for axis in split if axis >= 0) for split in dimensions)
    step, size = int(value.opt_weight_shard_step), int(value.opt_weight_shard_size)
    if step == 0 or size == 0:
        return Layout(devices, axes)
    if size == -1:
        size = math.prod(devices) // math.prod(Layout(devices, axes).parts)
    return Layout(devices, axes, step, size)


def rank_files(folder: Path) -> dict[int, Path]:
    """Find each rank's file of the newest step whose checkpoint is complete on every rank.

    Args:
        folder: MindFormers' ``checkpoint`` folder, with ``rank_0``, ``rank_1``, …

    Returns:
        Rank -> file; empty if no step is complete.
    """
    ranks = {int(path.name[5:]): path for path in folder.glob("rank_*") if path.name[5:].isdigit()}
    found = (folder / "rank_0").glob("*.safetensors")
    for first in sorted(found, key=lambda path: (path.stat().st_mtime_ns, path.name), reverse=True):
        files = {
            rank: path / re.sub(r"_rank_0(?!\d)", f"_rank_{rank}", first.name)
            for rank, path in sorted(ranks.items())
        }
        if all(is_complete(file) for file in files.values()):
            return files
    return {}


def _inner(folder: Path) -> Path:
    return folder / "checkpoint" if (folder / "checkpoint").is_dir() else folder


def complete_files(folder: Path) -> list[Path]:
    """Return the weight files of a checkpoint; empty if it has one folder per rank instead.

    Args:
        folder: As in ``open_checkpoint``.
    """
    inner = _inner(folder)
    return [] if (inner / "rank_0").is_dir() else weight_files(inner)


def open_checkpoint(folder: Path) -> dict[str, StoredTensor]:
    """Open the complete tensors of a checkpoint in any form; tensor values are not read yet.

    Args:
        folder: A folder with weights or with one folder per rank; or a folder with a subfolder
            ``checkpoint`` of this form. Strategy files are in a folder ``strategy``, which is in
            the folder of the rank folders or next to it.

    Raises:
        StageError: There is no complete checkpoint, or its slices do not form complete tensors.
    """
    if complete := complete_files(folder):
        return read_files(complete)
    inner = _inner(folder)
    files = rank_files(inner)
    if not files:
        raise StageError(f"{inner}: no step has a complete file in every rank's folder.")
    return open_ranks(files, (inner / "strategy", inner.parent / "strategy"), inner)


def open_ranks(
    files: Mapping[int, Path], strategies: Sequence[Path], where: Path
) -> dict[str, StoredTensor]:
    """Open the complete tensors whose slices the ranks hold.

    Args:
        files: Rank -> file.
        strategies: Folders that may have the strategy files; without them, every rank must have
            complete tensors.
        where: The checkpoint, for errors.

    Raises:
        StageError: The slices do not form complete tensors.
    """
    for strategy in strategies:
        if any(strategy.glob("*.ckpt")):
            return merge(files, read_layouts(strategy), where)
    return _replicas(files, where)


def _replicas(files: Mapping[int, Path], where: Path) -> dict[str, StoredTensor]:
    """Return rank 0's tensors; without strategy files, every rank must have all of them."""
    ranks = {rank: read_files([file]) for rank, file in files.items()}
    first = {name: tensor.shape for name, tensor in ranks[0].items()}
    for rank, tensors in ranks.items():
        if {name: tensor.shape for name, tensor in tensors.items()} != first:
            raise StageError(
                f"{where}: rank {rank} holds other tensors than rank 0, so these are slices, but "
                "the strategy files that merge them are missing. Put the folder 'strategy' of "
                "the run's output beside it."
            )
    return ranks[0]


def merge(files: Mapping[int, Path], layouts: Layouts, where: Path) -> dict[str, StoredTensor]:
    """Merge the ranks' slices into tensors; each tensor is assembled only when it is read.

    Args:
        files: Rank -> file.
        layouts: How each tensor is sliced. A tensor without a layout (a counter) is taken from the
            first rank that has it.
        where: The checkpoint, for error messages.

    Raises:
        StageError: Ranks or slices are missing, or the slices of a tensor do not match.
    """
    # Pipeline stages are numbered in the order of their ranks.
    ranks_of = {stage: one.ranks for stages in layouts.values() for stage, one in stages.items()}
    ranks = sum(ranks_of.values())
    if set(files) != set(range(ranks)):
        raise StageError(
            f"{where}: has files of {len(files)} ranks, expected {ranks} ranks in "
            f"{len(ranks_of)} pipeline stages by the strategy files. Put all files of one run "
            "together."
        )
    held = {rank: read_files([file]) for rank, file in files.items()}
    found: dict[str, StoredTensor] = {}
    for name in dict.fromkeys(name for tensors in held.values() for name in tensors):
        if name not in layouts:
            found[name] = next(tensors[name] for tensors in held.values() if name in tensors)
            continue
        stage, layout = min(layouts[name].items())
        begin = sum(size for other, size in ranks_of.items() if other < stage)
        stage_ranks = range(begin, begin + layout.ranks)
        slices = {rank: held[rank][name] for rank in stage_ranks if name in held[rank]}
        found[name] = _merged(slices, layout, begin, f"{where}: {name}")
    return found


def _merged(
    slices: Mapping[int, StoredTensor], layout: Layout, begin: int, where: str
) -> StoredTensor:
    """Merge a tensor from the slices of one pipeline stage, whose first rank is ``begin``."""
    kinds = {(tensor.dtype, tensor.shape) for tensor in slices.values()}
    if len(kinds) > 1:
        raise StageError(f"{where}: slices differ: {sorted(kinds)}. Put files of one run together.")
    copies: dict[tuple[int, ...], list[int]] = {}
    for rank in slices:
        copies.setdefault(layout.part_of(rank - begin), []).append(rank)
    absent = [part for part in product(*map(range, layout.parts)) if part not in copies]
    if absent:
        raise StageError(
            f"{where}: part {absent[0]} of {layout.parts} is missing ({len(absent)} in all): no "
            "rank's file holds it."
        )
    first = next(iter(slices.values()))
    if len(first.shape) != len(layout.parts):
        raise StageError(
            f"{where}: slices have shape {list(first.shape)}, expected {len(layout.parts)} "
            "dimensions by the strategy files, which come from another run."
        )
    shape = tuple(size * parts for size, parts in zip(first.shape, layout.parts, strict=True))

    def chunks() -> Iterator[memoryview]:
        data = memoryview(_assemble(slices, copies, first, shape, where)).cast("B")
        for start in range(0, len(data), CHUNK_BYTES):
            yield data[start : start + CHUNK_BYTES]

    return StoredTensor(first.dtype, shape, first.size * math.prod(layout.parts), chunks)


def _assemble(
    slices: Mapping[int, StoredTensor],
    copies: Mapping[tuple[int, ...], list[int]],
    first: StoredTensor,
    shape: tuple[int, ...],
    where: str,
) -> Any:
    """Build the complete tensor in memory, as unsigned integers of its values' width."""
    import numpy as np

    complete = np.empty(shape, f"u{first.item_bytes}")
    for part, ranks in copies.items():
        data = b"".join(slices[ranks[0]].chunks())
        for rank in ranks[1:]:
            if b"".join(slices[rank].chunks()) != data:
                raise StageError(
                    f"{where}: ranks {ranks[0]} and {rank} should hold the same values but do "
                    "not. Their files are of different steps, or the ranks diverged in training."
                )
        span = tuple(
            slice(index * size, (index + 1) * size)
            for index, size in zip(part, first.shape, strict=True)
        )
        complete[span] = np.frombuffer(data, complete.dtype).reshape(first.shape)
    return complete
