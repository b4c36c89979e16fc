"""Formats the result of a rehearsal for a terminal and as rehearsal.json."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from pcl_reasoner.core.artifact import write_atomically
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.rehearse.compare import (
    FIRST_STEP,
    HANDED_OVER,
    LATER_STEPS,
    LIMITS,
    PARAMETER,
    Comparison,
    as_json,
    summary,
)
from pcl_reasoner.rehearse.rounds import row_counts
from pcl_reasoner.rehearse.run import Finished
from pcl_reasoner.rehearse.scale import Scaled
from pcl_reasoner.train.config import TrainConfig

FILE = "rehearsal.json"
SHOWN = 10
"""Number of tensors that are named in an error."""
NOT_SHOWN = (
    "kernels are NumPy's, in float32. Not shown: the NPU's kernels, bfloat16 and float16, "
    "device memory, speed, cells that are inlined late"
)
_FLAGS = (
    *("sequence_parallel", "optimizer_shard", "recompute", "select_recompute", "swap"),
    *("swap_optimizer", "compressed_mask", "balance_rows", "gradient_aggregation_group"),
)


@dataclass(frozen=True)
class Rehearsal:
    """A rehearsal that ended.

    Args:
        title: The stage's title.
        recipe: The settings of the recipe's training.
        scaled: The settings that were executed.
        rows: Origin of the rows.
        one: The one process.
        ranks: The ranks.
        comparison: The differences.
    """

    title: str
    recipe: TrainConfig
    scaled: Scaled
    rows: str
    one: Finished
    ranks: Finished
    comparison: Comparison


def layout(config: TrainConfig) -> str:
    """Return ``DP 2 x TP 2 x PP 2, 8 ranks``."""
    sizes = (config.data_parallel, config.model_parallel, config.pipeline_stage)
    return f"DP {sizes[0]} x TP {sizes[1]} x PP {sizes[2]}, {config.devices} ranks"


def headlines(title: str, config: TrainConfig, scaled: Scaled, rows: str) -> Iterator[str]:
    """Yield the lines that say what will run."""
    yield f"rehearsal of {title}: {layout(scaled.config)} for the recipe's {layout(config)}"
    flags = (f"{name} {getattr(scaled.config, name)}" for name in _FLAGS)
    yield f"loss {config.loss}; {', '.join(flags)}"
    yield (
        f"{scaled.config.micro_batch_num} micro-batches of {scaled.config.micro_batch_size} rows "
        f"of {scaled.config.seq_length} tokens; {rows}"
    )
    if scaled.rounds is not None:
        counts = ", ".join(map(str, row_counts(scaled)))
        yield (
            f"a step is a round: rounds of {counts} rows, in micro-steps of {scaled.rounds.rows}; "
            "the one process takes all rows of a round at once"
        )
    yield NOT_SHOWN


def result_rows(comparison: Comparison) -> list[tuple[str, str]]:
    """Return rows (quantity, largest error) for a table."""
    return [
        (f"{name}, in updates" if name in (PARAMETER, HANDED_OVER) else name, f"{error:.1e}")
        for name, error in summary(comparison)
    ]


def write(found: Rehearsal, folder: Path) -> Path:
    """Write rehearsal.json; return its path."""
    value: dict[str, Any] = {
        "stage": found.title,
        "versions": {name: metadata.version(name) for name in ("mindspore", "mindformers")},
        "layout": layout(found.scaled.config),
        "recipe_layout": layout(found.recipe),
        "flags": {name: getattr(found.scaled.config, name) for name in _FLAGS},
        "changed": found.scaled.changed,
        "rows": found.rows,
        "rows_of_rounds": row_counts(found.scaled) if found.scaled.rounds else None,
        "not_shown": NOT_SHOWN,
        "seconds": {
            "one_process": round(found.one.seconds, 1),
            "ranks": round(found.ranks.seconds, 1),
        },
        "steps": [
            {"step": ours["step"], "one_process": _figures(ours), "ranks": _figures(theirs)}
            for ours, theirs in zip(found.one.steps, found.ranks.steps, strict=True)
        ],
        "limits": LIMITS,
        **as_json(found.comparison),
    }
    path = folder / FILE
    write_atomically(path, json.dumps(value, indent=1) + "\n")
    return path


def _figures(step: dict[str, Any]) -> dict[str, float]:
    return {name: step[name] for name in ("loss", "grad_norm")}


def refuse_differences(found: Rehearsal) -> None:
    """Raise an error if the ranks computed something else than the one process.

    Raises:
        StageError: A tensor, or a step's loss, norm or figures are off, or a tensor is missing.
    """
    compared = found.comparison
    lines = [
        f"{one.name}: {one.kind} off by {one.error:.2g} (rank {one.rank})" for one in compared.off()
    ]
    rest = len(lines) - SHOWN
    lines = lines[:SHOWN] + ([f"and {rest} more tensors"] if rest > 0 else [])
    lines += [
        f"{name} of step {step}: off by {error:.1e}" for name, step, error in compared.steps_off()
    ]
    lines += [f"{name}: no rank holds all of it" for name in compared.missing]
    if lines:
        limits = ", ".join(f"{kind} {limit:g}" for kind, limit in LIMITS.items())
        raise StageError(
            f"{layout(found.scaled.config)}: the ranks computed something else than one process. "
            f"Errors above the limits ({limits}; step 1 {FIRST_STEP:g}, later {LATER_STEPS:g}):\n"
            + "\n".join(lines)
            + "\n"
            f"Do not train with this layout. {FILE} has all tensors."
        )
