"""Chooses the ranks to compile, and a model size that fits this machine's memory.

One rank per pipeline stage is compiled: the ranks of a stage hold different slices of the weights,
but run the same operations. The model keeps its full width if that fits. The memory of a compile
grows with the layers of the complete model, because all layers are built before they are assigned
to stages. Rows keep their length, because no activation is ever allocated.
"""

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pcl_reasoner.core.errors import InputError, join_errors
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.rl.render import ROUND_STEP, planned_yaml
from pcl_reasoner.runner.plan import Plan
from pcl_reasoner.train.layout import batch_problems, device_problems, layout_problems, stage_layers
from pcl_reasoner.train.shape import training_of

Scale = Literal["full", "auto", "small"]

BASE_BYTES = 1_700_000_000
LAYER_BYTES = 65_000_000
ROUND_LAYER_BYTES = 20_000_000
"""Bytes per layer of the model, in addition, for the step of the stage ``rl``."""
MICRO_BATCH_BYTES = 4_000_000
"""Bytes per micro-batch and layer of the rank's own stage; LAYER_BYTES is per layer of the model.

All these are upper bounds, derived from peaks measured at full width
(docs/cluster/parallel_compile.md)."""

_SMALL_LAYERS, _SMALL_HEAD = 2, 16


@dataclass(frozen=True)
class Layout:
    """A parallel layout, and the position of each rank in it.

    Args:
        data: Data-parallel ranks.
        tensor: Tensor-parallel ranks.
        stages: Pipeline stages.
    """

    data: int
    tensor: int
    stages: int

    @property
    def world(self) -> int:
        """Number of ranks."""
        return self.data * self.tensor * self.stages

    def stage_of(self, rank: int) -> int:
        """The pipeline stage of a rank; a stage is a block of consecutive ranks."""
        return rank // (self.data * self.tensor)

    def group_name(self, ranks: tuple[int, ...]) -> str:
        """Describe a communication group by the axes along which its ranks differ, and its size."""
        if len(ranks) == self.world:
            return f"all {len(ranks)}"
        indices = {
            "pipeline": {self.stage_of(rank) for rank in ranks},
            "data": {rank // self.tensor % self.data for rank in ranks},
            "tensor": {rank % self.tensor for rank in ranks},
        }
        axes = [axis for axis, different in indices.items() if len(different) > 1]
        return f"{' x '.join(axes) or 'alone'} {len(ranks)}"


@dataclass(frozen=True)
class Job:
    """A MindFormers configuration at its compiled size, which may be smaller than the recipe's.

    Args:
        config: The configuration.
        layout: The configuration's parallel layout.
        changed: Settings that were made smaller, as ``key: before -> now``.
        estimate: Bytes that one rank's compile is expected to need.
    """

    config: dict[str, Any]
    layout: Layout
    changed: list[str]
    estimate: int


def configuration(plan: Plan) -> dict[str, Any]:
    """Render the MindFormers configuration of a plan's last stage, which is ``train`` or ``rl``.

    Problems are reported before anything is built.

    Raises:
        InputError: The stage trains on a CPU, its number of ranks is not the launch file's number
            of devices, or a size is not divisible as the layout requires.
    """
    planned = plan.stages[-1]
    config = training_of(planned.spec.config)
    assert config is not None
    if config.device != "Ascend":
        raise InputError(
            f"stage {planned.title}: device is {config.device} with launch file "
            f"{planned.recipe.launch_file}, so there is no parallel graph to compile. Give the "
            "launch file of a cluster, e.g. --launch v1_dp8_tp8_pp2."
        )
    rendered = planned_yaml(planned)
    found = problems(rendered, planned.spec.config.trains_on(planned.recipe.launch.placement))
    if found:
        raise join_errors([f"stage {planned.title}: {problem}." for problem in found])
    return rendered


def layout_of(config: Mapping[str, Any]) -> Layout:
    """Read the parallel layout from a MindFormers configuration."""
    parallel = config["parallel_config"]
    return Layout(parallel["data_parallel"], parallel["model_parallel"], parallel["pipeline_stage"])


def problems(config: Mapping[str, Any], placement: Placement) -> list[str]:
    """List the problems in the parallel layout of a MindFormers configuration.

    Args:
        config: The configuration.
        placement: The launch file's hosts that train.
    """
    layout, parallel = layout_of(config), config["parallel_config"]
    model = config["model"]["model_config"]
    data, tensor, stages = layout.data, layout.tensor, layout.stages
    micro_rows = model["batch_size"]
    rows = parallel["micro_batch_num"] * data * micro_rows
    hosts, devices_per_host = len(placement.hosts), placement.devices_per_host
    return [
        *device_problems(data, tensor, stages, hosts, devices_per_host),
        *batch_problems(rows, micro_rows, data, stages, "Ascend", layout.world),
        *layout_problems(model, tensor, stages, bool(parallel.get("use_seq_parallel"))),
    ]


def ranks_to_compile(layout: Layout, requested: str | None) -> list[int]:
    """Return the requested ranks; the first rank of every pipeline stage if none are requested.

    Args:
        layout: The layout.
        requested: ``0,32``, ``all``, or None.

    Raises:
        InputError: ``requested`` is not a list of ranks of this layout.
    """
    if requested is None:
        return [stage * layout.data * layout.tensor for stage in range(layout.stages)]
    if requested == "all":
        return list(range(layout.world))
    if not re.fullmatch(r"\d+(,\d+)*", requested):
        raise InputError(f"--ranks {requested}: must be ranks, e.g. 0,{layout.world - 1}, or all.")
    ranks = sorted({int(rank) for rank in requested.split(",")})
    if ranks[-1] >= layout.world:
        raise InputError(
            f"--ranks {requested}: rank {ranks[-1]} does not exist; the layout has "
            f"{layout.world} ranks, 0 to {layout.world - 1}."
        )
    return ranks


def estimated_bytes(config: Mapping[str, Any]) -> int:
    """Expected peak memory of one rank's compile, in bytes."""
    model, stages = config["model"]["model_config"], layout_of(config).stages
    deepest = max(stage_layers(model["num_layers"], stages, model.get("offset", 0)))
    return BASE_BYTES + deepest * _bytes_per_deep_layer(config)


def _bytes_per_deep_layer(config: Mapping[str, Any]) -> int:
    """Bytes for one more layer in every stage: all are built, and the rank's own is compiled."""
    micro_batches = int(config["parallel_config"].get("micro_batch_num", 1))
    by_rounds = config["runner_wrapper"]["type"] == ROUND_STEP
    layer = LAYER_BYTES + (ROUND_LAYER_BYTES if by_rounds else 0)
    return layer * layout_of(config).stages + MICRO_BATCH_BYTES * micro_batches


def free_bytes(meminfo: Path = Path("/proc/meminfo")) -> int:
    """Available memory in bytes, as Linux reports it; 0 if it reports none."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB", meminfo.read_text(), re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def plan_size(config: Mapping[str, Any], scale: Scale, free: int) -> Job:
    """Choose the size at which a configuration is compiled.

    Args:
        config: The MindFormers configuration at full size.
        scale: ``full``: full size. ``small``: two narrow layers per stage. ``auto``: full size if
            it fits; else fewer layers per stage; else one narrow layer per stage.
        free: Available memory in bytes.

    Raises:
        InputError: ``full`` is requested, but does not fit into ``free``.
    """
    full = _job(config, [])
    if scale == "full" and full.estimate > free:
        raise InputError(
            f"--scale full needs about {full.estimate / 1e9:.1f} GB of memory per rank, but "
            f"{free / 1e9:.1f} GB are free. Free memory, or compile a smaller model with "
            "--scale auto."
        )
    if scale == "full" or (scale == "auto" and full.estimate <= free):
        return full
    fitting = (free - BASE_BYTES) // _bytes_per_deep_layer(config)
    layers = _SMALL_LAYERS if scale == "small" else max(1, fitting)
    return _smaller_job(config, layers, narrow=scale == "small" or fitting < 1)


def _smaller_job(config: Mapping[str, Any], layers: int, narrow: bool) -> Job:
    """Return a job with at most ``layers`` layers per stage; small matrices if ``narrow``."""
    smaller = copy.deepcopy(dict(config))
    changed: list[str] = []
    _fewer_layers(smaller, layers, changed)
    if narrow:
        _narrower(smaller, layout_of(config).tensor, changed)
    return _job(smaller, changed)


def _job(config: Mapping[str, Any], changed: list[str]) -> Job:
    return Job(dict(config), layout_of(config), changed, estimated_bytes(config))


def _put(section: dict[str, Any], key: str, value: Any, changed: list[str]) -> None:
    """Set a value; if it was different, append the change to ``changed``."""
    if section.get(key) != value:
        changed.append(f"{key}: {section.get(key)} -> {value}")
        section[key] = value


def _fewer_layers(config: dict[str, Any], per_stage: int, changed: list[str]) -> None:
    """Give all stages equally many layers, at most ``per_stage``; recompute at most that number."""
    model = config["model"]["model_config"]
    stages = layout_of(config).stages
    layers = stage_layers(model["num_layers"], stages, model.get("offset", 0))
    _put(model, "num_layers", min(per_stage, *layers) * stages, changed)
    _put(model, "offset", 0, changed)
    recompute = config.get("recompute_config") or {}
    recomputed = recompute.get("recompute")
    if isinstance(recomputed, list):
        _put(recompute, "recompute", [min(count, per_stage) for count in recomputed], changed)
    elif isinstance(recomputed, int) and not isinstance(recomputed, bool):
        _put(recompute, "recompute", min(recomputed, per_stage), changed)


def _narrower(config: dict[str, Any], tensor: int, changed: list[str]) -> None:
    """Make matrices small; keep the number of heads, and all sizes divisible by ``tensor``."""
    model = config["model"]["model_config"]
    _put(model, "hidden_size", _SMALL_HEAD * model["num_heads"], changed)
    _put(model, "kv_channels", _SMALL_HEAD, changed)
    _put(model, "intermediate_size", 64 * tensor, changed)
    _put(model, "vocab_size", 128 * tensor, changed)
    for key in ("eos_token_id", "pad_token_id"):
        _put(model, key, min(int(model.get(key, 0)), model["vocab_size"] - 1), changed)
    optimizer = config["parallel"].get("parallel_optimizer_config")
    if optimizer:
        # A parameter below the threshold (KB) is not sharded, and all of these are small.
        _put(optimizer, "parallel_optimizer_threshold", 0, changed)
