"""Trainings that plans are tested with: V1's and V1.5's own, and one of round numbers."""

from __future__ import annotations

from pathlib import Path

from pcl_reasoner.estimate.training_size import GIB, Training, read_training
from pcl_reasoner.precompile import compile_plan
from pcl_reasoner.runner.plan import make_plan
from pcl_reasoner.runner.recipe import load_recipe


def recipe_training(
    recipe: str, launch: str, runs: Path, *overrides: str, stage: str = "train"
) -> Training:
    """What `pclr-ms plan` reads of a shipped recipe."""
    loaded = load_recipe(recipe, launch, overrides=overrides)
    return read_training(compile_plan.configuration(make_plan(loaded, runs, until=stage)))


SMALL = Training(
    layers=4,
    hidden=64,
    heads=4,
    key_heads=2,
    feed_forward=128,
    vocabulary=512,
    tied=False,
    biased=True,
    data=2,
    tensor=2,
    stages=2,
    stage_layers=(2, 2),
    row_tokens=100,
    micro_rows=1,
    micro_batches=2,
    compute_bytes=2,
    sequence_parallel=True,
    optimizer_shard=True,
    gradient_shard=False,
    shard_threshold=0,
    recomputed=(0, 0),
    selected=frozenset(),
    swap_attention=False,
    swap_optimizer=False,
    chunk_tokens=None,
    entropy=False,
    limit_bytes=58 * GIB,
)
"""The model and layout that tests/precompile/test_precompile_compile.py compiles, shorter rows."""
