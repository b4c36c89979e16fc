"""The train stage runs MindFormers' Trainer; the export stage writes Hugging Face weights.

train/   mindformers.yaml              the Trainer's configuration; paths relative to the folder
         data_order.json               {"rows": 397, "steps": 794, "order": [12, 3, …], …}
         metrics.jsonl                 one line per step
         seconds.jsonl                 seconds per step; it differs between equal runs
         probe.jsonl                   with a probe: one line per probe
         checkpoint/model.safetensors  the weights, MindFormers' names, no optimizer state
         prompt.json                   the prompt of the rows, as tokenize wrote it
export/  config.json, tokenizer.json, model.safetensors, …, prompt.json, parity.json
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcl_reasoner.core.artifact import write_json
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.stage import Counts, StageContext
from pcl_reasoner.losses import LOSSES
from pcl_reasoner.prompt.trained import copy_prompt, write_template
from pcl_reasoner.train import worker
from pcl_reasoner.train.config import ExportConfig, Probe, TrainConfig
from pcl_reasoner.train.needs import check_columns
from pcl_reasoner.train.on_hosts import move_host_logs
from pcl_reasoner.train.probe import write_files
from pcl_reasoner.train.render import WORK, write_yaml
from pcl_reasoner.train.session import run_training, starting_paths
from pcl_reasoner.train.stopping import (
    STOPPED,
    Stop,
    correct_share,
    mean_p,
    read_steps,
    skipped_steps,
)
from pcl_reasoner.verifiers.held_out import read_problems
from pcl_reasoner.weights import conversion
from pcl_reasoner.weights.slices import open_checkpoint
from pcl_reasoner.weights.stream import read_files, weight_files

if TYPE_CHECKING:
    from pcl_reasoner.pack.order import DataOrder


def train(
    config: TrainConfig, inputs: Mapping[str, Path], output: Path, context: StageContext
) -> Counts:
    """Train on packed rows; resume from the last complete checkpoint if a killed run left one."""
    read_files(weight_files(inputs["policy"]))  # raises an error for a truncated file
    rows = _packed_rows(config, inputs["packs"])
    check_columns(config.loss, config.loss_parameters, inputs["packs"])
    order, gain = _order(config, inputs["packs"], rows)
    if order.steps == 0:
        raise StageError(
            f"{rows} packed rows x {config.epochs} epochs do not fill one global batch of "
            f"{config.global_batch_size}. Lower train.global_batch_size, or give more data."
        )
    _write_order(output / "data_order.json", order, rows, config)
    work = output / WORK
    stopped = output / STOPPED
    prepare = partial(_prepare, config, inputs, output, rows, order.steps, context)
    if config.probe is not None:
        _write_probe(config.probe, inputs, work, context)
    stopped.unlink(missing_ok=True)
    if prepare() is not None:
        try:
            folders = [inputs["policy"], inputs["packs"]]
            run_training(config, folders, output, order.steps, prepare, context)
        except StageError as error:
            if stopped.exists():
                raise _stopped(stopped.read_text(encoding="utf-8").strip(), work) from error
            raise
    # The stop rules are not part of the result.
    kept = config.model_copy(update={"stop_if": Stop()})
    write_yaml(kept, inputs, output, row_count=str(rows))
    _keep_weights(output, inputs["policy"])
    copy_prompt(inputs["packs"], output)
    counts = _finish(config, output, rows, order.left_over, order.steps, context)
    counts.info.update(gain)
    return counts


def _prepare(
    config: TrainConfig,
    inputs: Mapping[str, Path],
    output: Path,
    rows: int,
    steps: int,
    context: StageContext,
) -> int | None:
    """Prepare training from the last complete checkpoint, or from the policy if there is none.

    Returns:
        The step from which training resumes; None if all steps are done.
    """
    start, done = starting_paths(config, inputs["policy"], output / WORK, context.warn)
    write_yaml(config, inputs, output, row_count=str(rows), **start)
    written = len(read_steps(output / "metrics.jsonl"))
    return done if min(done, written) < steps else None


def _stopped(reason: str, work: Path) -> StageError:
    saved = worker.newest_checkpoint(work)
    start = f"from step {worker.step_of(saved)}, its last checkpoint" if saved else "from the start"
    return StageError(
        f"training was stopped at {reason} Everything so far is kept: with another train.stop_if "
        f"the same command resumes {start}; with other settings it starts again."
    )


def _write_probe(
    probe: Probe, inputs: Mapping[str, Path], work: Path, context: StageContext
) -> None:
    """Write the probe's problems for the training process, and where their programs run."""
    if "probe" not in inputs:
        raise StageError(
            "train.probe needs problems with answers: give the stage the input `probe`, e.g. "
            "inputs: {probe: contamination}."
        )
    work.mkdir(exist_ok=True)
    problems = read_problems(inputs["probe"], probe.problems)
    write_files(work, problems, context.placement.sandbox)


def _packed_rows(config: TrainConfig, packs: Path) -> int:
    try:
        accounting = json.loads((packs / "accounting.json").read_text(encoding="utf-8"))
    except OSError as error:
        raise StageError(
            f"{packs}/accounting.json: {error.strerror}. Give the folder that the pack stage wrote."
        ) from error
    if accounting["seq_length"] != config.seq_length:
        raise StageError(
            f"rows were packed to {accounting['seq_length']} tokens, train.seq_length is "
            f"{config.seq_length}. Set both to the same."
        )
    return int(accounting["rows"])


def _order(config: TrainConfig, packs: Path, rows: int) -> tuple[DataOrder, dict[str, Any]]:
    """Return the order of all rows, and the ranks' imbalance before and after balancing."""
    from pcl_reasoner.pack.arrow_folder import read_arrow_folder
    from pcl_reasoner.pack.balance import attention_cost, imbalance
    from pcl_reasoner.pack.order import balanced_order, computed_rows, data_order

    size, ranks = config.global_batch_size, config.data_parallel
    order = data_order(rows, config.epochs, size, config.seed, config.max_steps)
    if not config.balance_rows:
        return order, {}
    ends = read_arrow_folder(packs)["actual_seq_len"].to_pylist()
    micro_batches = config.micro_batch_num
    balanced = balanced_order(order, ends, ranks, micro_batches)
    costs = attention_cost(ends)
    computed = [computed_rows(one, ranks, micro_batches) for one in (order, balanced)]
    gain = [round(imbalance(rows, costs, ranks, size), 4) for rows in computed]
    return balanced, {"slowest_rank_over_mean": gain}


def _write_order(path: Path, order: Any, rows: int, config: TrainConfig) -> None:
    value = {
        "rows": rows,
        "epochs": config.epochs,
        "global_batch_size": config.global_batch_size,
        "steps": order.steps,
        "left_over": order.left_over,
        "seed": config.seed,
        "order": order.rows.tolist(),
    }
    path.write_text(json.dumps(value) + "\n", encoding="utf-8")


def _keep_weights(output: Path, policy: Path) -> None:
    """Write the last weights without the optimizer's state; the ranks' slices are merged."""
    if worker.newest_checkpoint(output / WORK) is None:
        raise StageError(f"{output / WORK}: training left no complete checkpoint.")
    (output / "checkpoint").mkdir(exist_ok=True)
    conversion.write_trained(output / WORK, policy, output / "checkpoint" / "model.safetensors")


def _finish(
    config: TrainConfig, output: Path, rows: int, left_over: int, steps: int, context: StageContext
) -> Counts:
    """Check that every step is recorded, remove temporary folders, and return the counts."""
    records = read_steps(output / "metrics.jsonl")
    made = [record["step"] for record in records]
    if made != list(range(1, steps + 1)):
        absent = sorted(set(range(1, steps + 1)) - set(made))
        raise StageError(
            f"{output}/metrics.jsonl holds {len(records)} steps, expected 1 to {steps}, each once; "
            f"missing: {absent[:5]} ({len(absent)} in all). Training did not run to its end, or "
            "the file was changed: restore it, or delete the folder to train again."
        )
    worker.remove_tree(output / WORK)
    move_host_logs(output, context)
    _warn(records, config, context)
    used = rows * config.epochs - left_over
    dropped = {"left_over_rows": left_over} if left_over else {}
    info = {
        "steps": steps,
        "rows": rows,
        "epochs": config.epochs,
        "first_loss": records[0]["loss"],
        "last_loss": records[-1]["loss"],
        "skipped_steps": skipped_steps(records),
        "correct_p": p_change(records, "correct"),
        "incorrect_p": p_change(records, "incorrect"),
    }
    return Counts(unit="rows", read=used + left_over, kept=used, dropped=dropped, info=info)


def p_change(records: list[dict[str, Any]], kind: str) -> list[float] | None:
    """Return the mean p of correct or incorrect responses in the first and last tenth of a run.

    Args:
        records: Lines of metrics.jsonl, one per step.
        kind: ``correct`` or ``incorrect``.

    Returns:
        [first, last], or None if either tenth has no such response.
    """
    part = max(1, len(records) // 10)
    first, last = mean_p(records[:part], kind), mean_p(records[-part:], kind)
    return None if first is None or last is None else [round(first, 6), round(last, 6)]


def _warn(records: list[dict[str, Any]], config: TrainConfig, context: StageContext) -> None:
    change = p_change(records, "correct")
    if change and change[1] < change[0] - config.p_drop_warning:
        context.warn(
            f"mean p of correct responses fell from {change[0]:.3f} to {change[1]:.3f}: the policy "
            "unlearns what was correct. Lower the learning rate, or take fewer incorrect responses."
        )
    share = correct_share(records)
    if LOSSES[config.loss].pushes_down and share is not None and share < 0.5:
        context.warn(
            f"{share:.1%} of the responses trained on are correct. Under one half, a loss without "
            "a baseline pushes down what correct and incorrect answers share."
        )
    if skipped := skipped_steps(records):
        context.warn(f"{skipped} of {len(records)} steps were skipped for overflow.")


def export(
    config: ExportConfig, inputs: Mapping[str, Path], output: Path, context: StageContext
) -> Counts:
    """Write the trained weights as a Hugging Face folder; compare it with the checkpoint.

    Raises:
        StageError: The checkpoint lacks a tensor or has one of another shape, a tensor differs
            after writing, or (with ``logits``) the logits differ.
    """
    policy = inputs["policy"]
    found = open_checkpoint(inputs["checkpoint"])
    shape, limit = conversion.shape_in(policy), config.max_shard_bytes
    parity = conversion.write_model(
        found, shape, inputs["checkpoint"], output, "huggingface", limit
    )
    conversion.copy_others(policy, output)
    copy_prompt(inputs["checkpoint"], output)
    write_template(output)
    if config.logits:
        parity["logits"] = conversion.compare_logits(inputs["checkpoint"], output, "huggingface")
    write_json(output / conversion.PARITY, parity)
    kept = len(parity["tensors"])
    read = kept + sum(parity["left_out"].values())
    info = {"tensors": kept}
    return Counts(unit="tensors", read=read, kept=kept, dropped=parity["left_out"], info=info)
