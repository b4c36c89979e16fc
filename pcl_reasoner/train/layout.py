"""Checks that a parallel layout divides model and batch evenly, before anything is built.

MindFormers and MindSpore report some of these problems only while they compile, and some not at
all. For example, if the size of the vocabulary is not a multiple of the number of tensor-parallel
ranks, each rank silently keeps the complete vocabulary.
"""

from collections.abc import Iterator, Mapping
from typing import Any

_DIVISORS = {
    "num_heads": ("hidden_size",),
    "n_kv_heads": ("num_heads",),
    "model_parallel": ("num_heads", "n_kv_heads", "intermediate_size", "vocab_size"),
}
"""Divisor (a number of heads or ranks) -> the sizes that must be multiples of this divisor."""


def device_problems(
    data_parallel: int, model_parallel: int, pipeline_stage: int, hosts: int, devices_per_host: int
) -> list[str]:
    """Check that there are as many ranks as the launch file has devices.

    Args:
        data_parallel: Number of data-parallel ranks.
        model_parallel: Number of tensor-parallel ranks.
        pipeline_stage: Number of pipeline stages.
        hosts: Number of hosts in the launch file.
        devices_per_host: Devices per host.

    Returns:
        One sentence if the numbers differ, else an empty list.
    """
    ranks, offered = data_parallel * model_parallel * pipeline_stage, hosts * devices_per_host
    if ranks == offered:
        return []
    return [
        "data_parallel x model_parallel x pipeline_stage must be the devices of the launch file, "
        f"got {data_parallel} x {model_parallel} x {pipeline_stage} = {ranks} ranks for "
        f"{hosts} hosts x {devices_per_host} devices = {offered}"
    ]


def batch_problems(
    global_rows: int,
    micro_rows: int,
    data_parallel: int,
    pipeline_stage: int,
    device: str,
    ranks: int,
) -> list[str]:
    """Check that rows can be divided among ranks and micro-batches.

    Args:
        global_rows: Rows per optimizer step.
        micro_rows: Rows per rank and micro-batch.
        data_parallel: Number of data-parallel ranks.
        pipeline_stage: Number of pipeline stages.
        device: ``CPU`` or ``Ascend``.
        ranks: Number of ranks in all.

    Returns:
        One sentence per problem.
    """
    micro_batches, rest = divmod(global_rows, data_parallel * micro_rows)
    found = []
    if rest:
        found.append(
            "global_batch_size must be a multiple of data_parallel x micro_batch_size, "
            f"got {global_rows} for {data_parallel} x {micro_rows}"
        )
    if pipeline_stage > micro_batches:
        found.append(
            f"a pipeline of {pipeline_stage} stages needs at least as many micro-batches, "
            f"got {micro_batches}"
        )
    limits = {"CPU": "a CPU cannot accumulate gradients"}
    if ranks == 1:
        limits["Ascend"] = "MindFormers accumulates gradients on several ranks only"
    if not rest and micro_batches != 1 and device in limits:
        found.append(
            f"{limits[device]}: micro_batch_size x data_parallel must be global_batch_size, "
            f"got {micro_rows} x {data_parallel} for {global_rows}"
        )
    return found


def layout_problems(
    model: Mapping[str, Any], model_parallel: int, pipeline_stage: int, sequence_parallel: bool
) -> list[str]:
    """Check that the layout divides the model evenly.

    Args:
        model: MindFormers' ``model_config``, or its known part: the shape under the names of
            ModelShape, ``batch_size``, ``seq_length``, and ``offset`` (layers that a
            pipeline stage has in addition to num_layers // pipeline_stage).
        model_parallel: Number of tensor-parallel ranks.
        pipeline_stage: Number of pipeline stages.
        sequence_parallel: Whether activations are divided along their tokens.

    Returns:
        One sentence per problem.
    """
    return [
        *_indivisible({**model, "model_parallel": model_parallel}),
        *_by_stages(model, pipeline_stage),
        *(_tokens(model, model_parallel) if sequence_parallel else ()),
    ]


def _indivisible(sizes: Mapping[str, Any]) -> Iterator[str]:
    for divisor, names in _DIVISORS.items():
        for name in names:
            size, parts = sizes.get(name), sizes.get(divisor)
            if size and parts and size % parts:
                yield f"{name} must be a multiple of {divisor}, got {size} for {parts}"


def _by_stages(model: Mapping[str, Any], stages: int) -> Iterator[str]:
    if "num_layers" not in model:
        return
    layers = stage_layers(model["num_layers"], stages, model.get("offset", 0))
    if sum(layers) != model["num_layers"] or min(layers) < 1:
        yield (
            f"num_layers must be a multiple of pipeline_stage, got {model['num_layers']} for "
            f"{stages} (an uneven split: mindformers.model.model_config.offset, one number "
            f"per stage; with {model.get('offset', 0)} the stages have {layers} layers)"
        )


def _tokens(model: Mapping[str, Any], model_parallel: int) -> Iterator[str]:
    tokens = model.get("batch_size", 1) * model.get("seq_length", 0)
    if tokens % model_parallel:
        yield (
            "with sequence_parallel, micro_batch_size x seq_length must be a multiple of "
            f"model_parallel, got {tokens} for {model_parallel}"
        )


def stage_layers(num_layers: int, stages: int, offset: int | list[int] = 0) -> list[int]:
    """Return the number of layers of each pipeline stage, as MindFormers distributes them.

    Args:
        num_layers: Layers of the complete model.
        stages: Number of pipeline stages.
        offset: MindFormers' ``offset``: layers to add to num_layers // stages, one number for all
            stages or one per stage. A list of another length gives 0 layers for every stage.
    """
    offsets = offset if isinstance(offset, list) else [offset] * stages
    if len(offsets) != stages:
        return [0] * stages
    return [num_layers // stages + extra for extra in offsets]
