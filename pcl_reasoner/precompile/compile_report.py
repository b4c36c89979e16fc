"""Formats the results of compiled ranks as rows for a terminal and as one JSON value."""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from pcl_reasoner.core.artifact import write_atomically
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.precompile.compile_plan import Job
from pcl_reasoner.precompile.compile_run import Compiled, title
from pcl_reasoner.precompile.mindspore_2_7_graph import REDISTRIBUTION, Communication

NOT_SHOWN = (
    "numerics, kernels, device memory, collectives at work, and what a back end does to the graph"
)
_OURS = "PclQwen2ForCausalLM"
_NOT_OURS = ("model-", "lm_head-")
"""Path prefixes of the Cells that belong to MindFormers."""
_SCORES = "chunked_log_probs-ChunkedLogProbs/combined_scores-CombinedScores"
"""The Cell in which a rank gathers P scores per token, one from each of P vocabulary parts."""


def in_our_code(one: Communication) -> bool:
    """Return whether ``one`` is a redistribution that MindSpore inserted between our operators.

    The gather at _SCORES is intended and does not count. The backward half of a redistribution does
    not count either: it follows from the forward half, and MindSpore names it after another Cell.
    """
    first, _, rest = one.where.partition("/")
    on_purpose = one.operation == "AllGather" and rest == _SCORES
    is_ours = first == _OURS and not rest.startswith(_NOT_OURS) and not on_purpose
    return one.purpose == REDISTRIBUTION and is_ours


def merged(compiled: Compiled) -> list[Communication]:
    """Return the AllReduces in a rank's graph that make gradients wrong (``merged`` is true)."""
    return [one for one in compiled.communications if one.merged]


def refuse_merged(job: Job, done: Iterable[Compiled]) -> None:
    """Raise an error if a compiled graph has wrong gradients.

    Raises:
        StageError: A rank's graph has a merged AllReduce; the message names all ranks and Cells.
    """
    lines = [
        f"{title(job, compiled.rank)}: {one.where}, {one.operation} of {one.sent} over "
        f"{job.layout.group_name(one.ranks)}, {one.count} per step"
        for compiled in done
        for one in merged(compiled)
    ]
    if lines:
        raise StageError(
            "the compiled graph has wrong gradients: MindSpore rewrote AllReduce(x)·y + z to "
            "AllReduce(x + z)·y (docs/internals/mindspore_all_reduce.md). Do not train with it. "
            "Let each rank gather the values that were summed over ranks, as in "
            "pcl_reasoner/losses/chunked.py.\n" + "\n".join(lines)
        )


def headlines(stage: str, job: Job) -> list[str]:
    """Return lines that describe the model, the layout and the size that will be compiled."""
    model = job.config["model"]["model_config"]
    layout = job.layout
    seconds = 20 + 3 * model["num_layers"]  # from observed compiles
    time = f"{seconds} s" if seconds < 100 else f"{math.ceil(seconds / 60)} min"
    size = "full size" if not job.changed else f"SCALED DOWN ({'; '.join(job.changed)})"
    return [
        f"{stage}: front-end parallel compile, {layout.data} data x {layout.tensor} tensor x "
        f"{layout.stages} pipeline = {layout.world} ranks; {size}",
        f"{model['num_layers']} layers, hidden {model['hidden_size']:,}, vocabulary "
        f"{model['vocab_size']:,}, rows of {model['seq_length']:,} tokens",
        f"a rank takes about {job.estimate / 1e9:.1f} GB of memory and, on an idle core, {time}",
        f"it does not show {NOT_SHOWN}",
    ]


def summary(job: Job, compiled: Compiled) -> str:
    """Return the results of one compiled rank as one line."""
    whole, held = parameter_counts(compiled)
    return (
        f"{title(job, compiled.rank)}: passed in {compiled.compile_seconds:.1f} s, "
        f"{compiled.peak_bytes / 1e9:.1f} GB; parameters of the stage {whole:,}, "
        f"this rank holds {held:,}; merged AllReduces {len(merged(compiled))}"
    )


def parameter_rows(compiled: Compiled) -> list[tuple[str, str, str, str, str, str]]:
    """Return rows (name, count, complete shape, slice, optimizer shards, shape on this rank).

    A parameter that every layer has gets one row, if its shapes are equal in all layers.
    """
    kinds: Counter[tuple[str, str, str, str, str]] = Counter()
    for one in compiled.parameters:
        name = re.sub(r"\.layers\.\d+\.", ".layers.*.", one["name"])
        shapes = (_shape(one["whole"]), _shape(one["slice"]))
        shards = str(len(one["optimizer_group"]) or "-")
        kinds[(name, *shapes, shards, _shape(one["held"]))] += 1
    return [(key[0], str(count), *key[1:]) for key, count in kinds.items()]


def _shape(sizes: Iterable[int]) -> str:
    return " x ".join(f"{size:,}" for size in sizes)


def parameter_counts(compiled: Compiled) -> tuple[int, int]:
    """Return (number of parameters of the complete stage, number that this rank holds)."""
    whole = sum(math.prod(one["whole"]) for one in compiled.parameters)
    return whole, sum(math.prod(one["held"]) for one in compiled.parameters)


def communication_rows(job: Job, compiled: Compiled) -> list[tuple[str, str, str, str, str]]:
    """Return rows (group, operation, purpose, count per step, MiB per step), most bytes first."""
    times: Counter[tuple[str, str, str]] = Counter()
    size: Counter[tuple[str, str, str]] = Counter()
    for one in compiled.communications:
        key = (job.layout.group_name(one.ranks), one.operation, one.purpose)
        times[key] += one.count
        size[key] += one.count * one.bytes
    order = sorted(times, key=lambda key: (-size[key], key))
    return [(*key, f"{times[key]:,}", f"{size[key] / 2**20:,.1f}") for key in order]


def redistribution_rows(job: Job, compiled: Compiled) -> list[tuple[str, str, str, str, str, str]]:
    """Return rows (Cell, operation, group, from, to, count per step), filtered by `in_our_code`."""
    group = job.layout.group_name
    return [
        (one.where, one.operation, group(one.ranks), one.sent, one.received, f"{one.count:,}")
        for one in compiled.communications
        if in_our_code(one)
    ]


def write(job: Job, stage: str, done: list[Compiled], folder: Path) -> Path:
    """Write all results to compile.json and return its path.

    Args:
        job: The compiled configuration.
        stage: The train stage's title.
        done: The compiled ranks.
        folder: The folder for the file.
    """
    model = job.config["model"]["model_config"]
    shape = ("num_layers", "hidden_size", "num_heads", "n_kv_heads", "intermediate_size")
    value = {
        "what": "front-end parallel compile",
        "not_shown": NOT_SHOWN,
        "stage": stage,
        "versions": {name: metadata.version(name) for name in ("mindspore", "mindformers")},
        "layout": {**asdict(job.layout), "world": job.layout.world},
        "model": {key: model[key] for key in (*shape, "vocab_size", "seq_length")},
        "scaled_down": job.changed,
        "ranks": [_rank_json(job, compiled) for compiled in done],
    }
    file = folder / "compile.json"
    write_atomically(file, json.dumps(value, indent=1) + "\n")
    return file


def _rank_json(job: Job, compiled: Compiled) -> dict[str, Any]:
    whole, held = parameter_counts(compiled)
    value = asdict(compiled)
    value["communications"] = [
        {**asdict(one), "group": job.layout.group_name(one.ranks), "in_our_code": in_our_code(one)}
        for one in compiled.communications
    ]
    return {"parameters_of_stage": whole, "parameters_held": held, **value}
