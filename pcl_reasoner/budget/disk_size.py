"""The disk that a recipe needs, by what takes most of it.

    models that are fetched                          802 GB
    responses of am_thinking_v1/sample_sft           8 GB while they are drawn, then 3 GB
    checkpoints of am_thinking_v1/train, 10 of 41    4,137 GB

A GB is 10^9 bytes. Data sets are not counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from pcl_reasoner.budget.round_size import RoundEstimate
from pcl_reasoner.budget.served_model import hub_model
from pcl_reasoner.budget.serving_size import Asked
from pcl_reasoner.estimate.data_size import DataSize
from pcl_reasoner.estimate.memory_estimate import slice_numbers
from pcl_reasoner.estimate.saves import HASHING_RATE, checkpoint_bytes
from pcl_reasoner.estimate.served_shape import ServedModel
from pcl_reasoner.estimate.training_size import Training
from pcl_reasoner.rounds.config import RlConfig
from pcl_reasoner.runner.plan import Plan
from pcl_reasoner.runner.sources import fetched
from pcl_reasoner.train.config import TrainConfig

GB = 1e9
DRAWN_BYTES, KEPT_BYTES = 11, 4
"""Assumed bytes per token of a response: in the log while responses are drawn (text, and the ids as
JSON), and in the artifact (compressed Parquet)."""
TOKENIZED_BYTES, PACKED_BYTES = 8, 12
"""Bytes per token of tokenize's columns (input_ids, labels) and of pack's (also segment_ids)."""
ROUND_DRAWN_BYTES, ROUND_KEPT_BYTES = 31, 8
"""Assumed, as DRAWN_BYTES and KEPT_BYTES; the responses of a round also have log-probs."""
ROUND_ROW_BYTES = 16
"""Bytes per token of a round's rows: those of pack's columns, and old_log_probs."""
LOG_BYTES = 1000
"""Assumed bytes that a rank writes into its log per step: MindFormers' line, and warnings."""
_MERGED_BYTES = 4
"""Bytes per parameter in the merged checkpoint and in the export, both float32."""
_SECONDS_PER_HOUR = 3600

Line = tuple[str, str]
"""What takes space, and how much."""


def fetched_bytes(plan: Plan, policy: Path, trained: ServedModel) -> float:
    """Bytes of the models that are fetched and whose size is known; arguments as below."""
    found = 0.0
    for folder, (_, source) in plan.to_fetch.items():
        if source.kind == "model" and not fetched(folder):
            model = trained if folder == policy else hub_model(source)
            found += model.stored * model.weight_bytes if model else 0.0
    return found


def fetched_models(plan: Plan, policy: Path, trained: ServedModel) -> Iterator[Line]:
    """Yield the models of the hub that are not on this machine yet.

    Args:
        plan: The plan.
        policy: Folder of the weights that training starts from.
        trained: Their shape.
    """
    for folder, (name, source) in plan.to_fetch.items():
        if source.kind == "model" and not fetched(folder):
            model = trained if folder == policy else hub_model(source)
            size = f"{model.stored * model.weight_bytes / GB:,.0f} GB" if model else "unknown"
            yield f"fetched: {name} ({source.hub} at {source.revision})", size


def drawn_responses(asked: Iterable[Asked]) -> Iterator[Line]:
    """Yield the responses that stages draw; those that are only read are counted already."""
    for one in asked:
        tokens = one.workload.responses * one.workload.tokens
        by_rounds = isinstance(one.planned.spec.config, RlConfig)
        if tokens and one.needs.kind == "sampling" and not by_rounds:
            drawn, kept = (f"{tokens * each / GB:,.1f} GB" for each in (DRAWN_BYTES, KEPT_BYTES))
            yield f"responses of {one.planned.title}", f"{drawn} while they are drawn, then {kept}"


def training(stage: str, config: TrainConfig, job: Training, size: DataSize) -> Iterator[Line]:
    """Yield the rows of a training, its checkpoints, and the model that it makes.

    Args:
        stage: The recipe and the stage.
        config: The stage's settings.
        job: The training.
        size: Rows and steps.
    """
    tokenized, packed = (each / GB for each in row_bytes(size))
    yield f"rows of {stage}", f"{tokenized:,.0f} GB tokenized, {packed:,.0f} GB packed"
    written = max(1, -(-size.steps // config.checkpoint_steps))
    yield _checkpoints(stage, job, config.keep_checkpoints, written)
    yield _merged(stage, job)
    yield (
        f"logs of {stage}",
        f"{LOG_BYTES * size.steps * job.devices / GB:,.1f} GB (ASSUMED: {LOG_BYTES:,} bytes per "
        "step and rank)",
    )
    yield _hashed(
        f"rows, checkpoint and export of {stage}", 2 * model_bytes(job) / GB + tokenized + packed
    )


def row_bytes(size: DataSize) -> tuple[float, float]:
    """Bytes of a training's tokenized segments, and of its packed rows."""
    return size.tokens * TOKENIZED_BYTES, size.rows * size.row_tokens * PACKED_BYTES


def model_bytes(job: Training) -> float:
    """Bytes of the trained model in float32."""
    whole = sum(slice_numbers(job, one) * job.tensor for one in range(job.stages))
    return whole * _MERGED_BYTES


def round_bytes(found: RoundEstimate) -> tuple[float, float]:
    """Bytes that a round leaves: its rows if all are kept, and its responses."""
    rows = found.size.rows * found.size.row_tokens * ROUND_ROW_BYTES
    stored = found.config.responses * found.tokens.number * ROUND_KEPT_BYTES
    return (rows if found.config.keep_rows == "all" else 0.0), stored


def _hashed(what: str, size: float) -> Line:
    """How long it takes to compare files with their hashes.

    Args:
        what: The files.
        size: In GB.
    """
    hours = size * GB / HASHING_RATE / _SECONDS_PER_HOUR
    return (
        f"{what} are hashed: once, and by each `verify`",
        f"{size:,.0f} GB: {hours:.2f} h on one core, less on more if the disk is as fast",
    )


def rounds(found: RoundEstimate) -> Iterator[Line]:
    """Yield the weights, checkpoints, rows and responses of a stage ``rl``, and its model.

    Args:
        found: A round.
    """
    stage, config, job = found.stage, found.config, found.now.job
    kept, folder = config.keep_weights, found.folder_bytes / GB
    yield (
        f"weights for samplers of {stage}, {kept} kept (keep_weights), one being written",
        f"{(kept + 1) * folder:,.0f} GB, {folder:,.0f} GB each in {config.weights_dtype}",
    )
    slices = found.slice_bytes / GB
    yield (
        f"ranks' slices of {stage}, two rounds' at most",
        f"{2 * slices:,.0f} GB, {slices:,.0f} GB each",
    )
    written = max(1, -(-config.max_rounds // config.checkpoint_rounds))
    yield _checkpoints(stage, job, config.keep_checkpoints, written)
    rows = found.size.rows * found.size.row_tokens * ROUND_ROW_BYTES / GB
    numbers = config.max_rounds if config.keep_rows == "all" else 1
    yield (
        f"rows of {stage} (keep_rows: {config.keep_rows})",
        f"{rows:,.2f} GB per round, {numbers * rows:,.0f} GB after {config.max_rounds} rounds",
    )
    tokens = config.responses * found.tokens.number
    drawn, stored = (tokens * each / GB for each in (ROUND_DRAWN_BYTES, ROUND_KEPT_BYTES))
    yield (
        f"responses of {stage}",
        f"{drawn:,.2f} GB while a round's are drawn, then {stored:,.2f} GB; "
        f"{config.max_rounds * stored:,.0f} GB after {config.max_rounds} rounds",
    )
    yield _merged(stage, job)
    yield _hashed(f"checkpoint and export of {stage}", 2 * model_bytes(job) / GB)


def _checkpoints(stage: str, job: Training, keep: int, written: int) -> Line:
    kept, one = min(keep, written), checkpoint_bytes(job) / GB
    return (
        f"checkpoints of {stage}, {kept} of {written} kept (keep_checkpoints)",
        f"{kept * one:,.0f} GB, {one:,.0f} GB each",
    )


def _merged(stage: str, job: Training) -> Line:
    model = model_bytes(job) / GB
    return f"merged checkpoint and export of {stage}", f"{2 * model:,.0f} GB, {model:,.0f} GB each"
