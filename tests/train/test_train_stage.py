"""The train and export stages, by the real MindFormers Trainer on a tiny model."""

from __future__ import annotations

import hashlib
import json
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from kill_helpers import kill_at_step
from safetensors.numpy import load_file, save_file
from train_helpers import torch_losses, train_config, write_packs, write_policy
from transformers import AutoModelForCausalLM

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.stage import Counts, StageContext
from pcl_reasoner.pack.arrow_folder import read_arrow_folder
from pcl_reasoner.train import worker
from pcl_reasoner.train.config import TrainConfig
from pcl_reasoner.train.needs import check_columns
from pcl_reasoner.train.stage import ExportConfig, export, train
from pcl_reasoner.train.stopping import read_steps
from pcl_reasoner.weights.seals import seal_files

SIZES = [5, 9, 14, 20, 7, 25, 30, 11, 6, 17, 22, 13, 8, 19, 28, 10]
STEPS = 24


@dataclass(frozen=True)
class Trained:
    """What one run of the stage was given and left."""

    config: TrainConfig
    inputs: dict[str, Path]
    output: Path
    counts: Counts
    context: StageContext

    @property
    def records(self) -> list[dict[str, Any]]:
        return read_steps(self.output / "metrics.jsonl")

    def batch(self, step: int) -> list[dict[str, Any]]:
        """The packed rows of a step, 1-based."""
        order = json.loads((self.output / "data_order.json").read_text())
        size = order["global_batch_size"]
        rows = read_arrow_folder(self.inputs["packs"]).to_pylist()
        return [rows[row] for row in order["order"][(step - 1) * size : step * size]]


def config_of(**changes: Any) -> TrainConfig:
    settings = {"epochs": 6, "learning_rate": 1e-3, "learning_rate_end": 1e-4} | changes
    return train_config(checkpoint_steps=5, **settings)


def run_train(
    folder: Path, config: TrainConfig, inputs: dict[str, Path], **placement: Any
) -> Trained:
    output = folder / "train.partial"
    output.mkdir(parents=True, exist_ok=True)
    context = StageContext("train", output / "quarantined.jsonl", Placement(**placement))
    return Trained(config, inputs, output, train(config, inputs, output, context), context)


def contents(folder: Path) -> dict[str, str]:
    """Every file's hash, but for seconds.jsonl, which differs between equal runs."""
    found = (path for path in folder.rglob("*") if path.is_file())
    files = (path for path in found if path.name != "seconds.jsonl")
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("inputs")
    return {
        "policy": write_policy(folder / "policy"),
        "packs": write_packs(folder / "packs", SIZES),
    }


@pytest.fixture(scope="module")
def sft(tmp_path_factory: pytest.TempPathFactory, inputs: dict[str, Path]) -> Trained:
    return run_train(tmp_path_factory.mktemp("sft"), config_of(), inputs)


@pytest.fixture(scope="module")
def opg(tmp_path_factory: pytest.TempPathFactory, inputs: dict[str, Path]) -> Trained:
    """OPG on a model whose embeddings are tied, as small Qwen2 models' are."""
    folder = tmp_path_factory.mktemp("opg")
    tied = write_policy(folder / "policy", tied=True)
    config = config_of(loss="opg", max_steps=8, weight_decay=0.1)
    return run_train(folder, config, {**inputs, "policy": tied})


def test_the_first_loss_is_transformers_own(sft: Trained) -> None:
    expected = torch_losses(sft.inputs["policy"], sft.batch(1))["sft"]
    assert sft.records[0]["loss"] == pytest.approx(expected, rel=1e-5)
    # Rows of other steps have another loss, so the order on record is the order trained on.
    assert torch_losses(sft.inputs["policy"], sft.batch(2))["sft"] != pytest.approx(
        expected, rel=1e-3
    )


def test_the_first_opg_loss_is_transformers_own(opg: Trained) -> None:
    rewards = [reward for row in opg.batch(1) for reward in row["rewards"]]
    assert {0.0, 1.0} < set(rewards)
    expected = torch_losses(opg.inputs["policy"], opg.batch(1))["opg"]
    assert opg.records[0]["loss"] == pytest.approx(expected, rel=1e-5)


def test_every_step_is_on_record_once(sft: Trained) -> None:
    records = sft.records
    assert [record["step"] for record in records] == list(range(1, STEPS + 1))
    assert records[-1]["loss"] < records[0]["loss"] - 1
    rates = [record["learning_rate"] for record in records]
    assert rates[0] == pytest.approx(1e-3)
    assert rates == sorted(rates, reverse=True)
    # The cosine from 1e-3 to 1e-4 at its middle.
    assert rates[STEPS // 2] == pytest.approx(5.5e-4, rel=1e-4)
    for step in (1, STEPS):
        batch = sft.batch(step)
        rewards = [reward for row in batch for reward in row["rewards"]]
        record = records[step - 1]
        assert record["correct_count"] == sum(reward >= 0.5 for reward in rewards)
        assert record["incorrect_count"] == sum(reward < 0.5 for reward in rewards)
        labels = [label for row in batch for label in row["labels"]]
        assert record["tokens"] == sum(label != -100 for label in labels)
        assert record["overflow"] == 0


def test_every_step_is_timed(sft: Trained) -> None:
    """The process has started and compiled before its first step; the last has nothing after it."""
    times = [json.loads(line) for line in (sft.output / "seconds.jsonl").read_text().splitlines()]
    assert [line["step"] for line in times] == list(range(1, STEPS + 1))
    assert all(line["seconds"] > 0 for line in times)
    assert [line["step"] for line in times if "before" in line] == [1]
    assert [line["step"] for line in times if "after" not in line] == [STEPS]


def test_the_artifact_holds_its_four_parts_and_nothing_else(sft: Trained) -> None:
    names = ["checkpoint/model.safetensors", "data_order.json", "metrics.jsonl", "mindformers.yaml"]
    assert sorted(contents(sft.output)) == names
    assert not (sft.output / "output").exists()
    text = (sft.output / "mindformers.yaml").read_text()
    assert str(sft.output.parent) not in text
    assert sft.counts.read == sft.counts.kept == 48
    assert sft.counts.info["steps"] == STEPS


def test_the_inputs_are_left_as_they_were(
    sft: Trained, opg: Trained, tmp_path: Path, inputs: dict[str, Path]
) -> None:
    assert contents(inputs["policy"]) == contents(write_policy(tmp_path / "policy"))
    assert contents(inputs["packs"]) == contents(write_packs(tmp_path / "packs", SIZES))


def test_rows_beyond_the_steps_are_counted(opg: Trained) -> None:
    # 8 rows x 6 epochs; 8 steps of 2 are made.
    assert opg.counts.dropped == {"left_over_rows": 32}
    assert opg.counts.kept == 16


@pytest.mark.parametrize("name", ["sft", "opg"])
def test_the_exported_model_is_the_trained_one(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    trained: Trained = request.getfixturevalue(name)
    policy = trained.inputs["policy"]
    output = tmp_path / "export"
    output.mkdir()
    given = {"policy": policy, "checkpoint": trained.output}
    counts = export(ExportConfig(), given, output, StageContext("export", output / "apart.jsonl"))

    before, after = load_file(policy / "model.safetensors"), load_file(output / "model.safetensors")
    assert counts.kept == len(before) == (14 if name == "opg" else 15)
    assert {key: value.shape for key, value in after.items()} == {
        key: value.shape for key, value in before.items()
    }
    changed = [key for key in before if (before[key] != after[key]).any()]
    assert changed == list(before)
    model = AutoModelForCausalLM.from_pretrained(output)
    for key, value in model.state_dict().items():
        if key in after:
            assert torch.equal(value, torch.from_numpy(after[key])), key
    # The last step's rows were learnt: transformers finds a lower loss with the exported weights.
    losses = [torch_losses(folder, trained.batch(1))[name] for folder in (policy, output)]
    assert losses[1] < losses[0]


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_losses(
    sft: Trained, tmp_path: Path, inputs: dict[str, Path]
) -> None:
    output = kill_at_step(tmp_path, sft.config, inputs, 12)
    # As a kill in the middle of writing leaves it: the newest checkpoint and line are cut off.
    saved = sorted((output / "work" / "checkpoint" / "rank_0").glob("*.safetensors"))
    newest = max(saved, key=lambda path: path.stat().st_mtime_ns)
    newest.chmod(0o600)
    newest.write_bytes(newest.read_bytes()[:-100])
    with (output / "metrics.jsonl").open("a") as handle:
        handle.write('{"step": 99, "lo')

    resumed = run_train(tmp_path, sft.config, inputs)
    assert resumed.records == sft.records
    assert contents(resumed.output) == contents(sft.output)


@pytest.mark.slow
def test_a_damaged_checkpoint_is_passed_over_and_said(
    sft: Trained, tmp_path: Path, inputs: dict[str, Path]
) -> None:
    output = kill_at_step(tmp_path, sft.config, inputs, 12)
    saved = sorted((output / "work" / "checkpoint" / "rank_0").glob("*.safetensors"))
    newest = max(saved, key=lambda path: path.stat().st_mtime_ns)
    seal_files(newest.parent)  # the kill may have come between a checkpoint and its seal
    newest.chmod(0o600)
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 1  # in a tensor: the header still fits the file
    newest.write_bytes(data)

    resumed = run_train(tmp_path, sft.config, inputs)
    (warning,) = resumed.context.warnings
    assert f"{newest}: damaged after it had been written" in warning
    assert resumed.records == sft.records
    assert contents(resumed.output) == contents(sft.output)


def left_by_a_kill(sft: Trained, folder: Path, step: int) -> Path:
    """All metrics on record, and the newest checkpoint is that of a step."""
    output = folder / "train.partial"
    saved = output / "work" / "checkpoint" / "rank_0" / f"policy_rank_0-1_{step}.safetensors"
    saved.parent.mkdir(parents=True)
    (output / "metrics.jsonl").write_bytes((sft.output / "metrics.jsonl").read_bytes())
    held = load_file(sft.output / "checkpoint" / "model.safetensors")
    save_file(held | {"step_num": np.array(step), "adam_m.w": np.zeros(2)}, saved)
    return output


def test_a_run_that_was_killed_after_its_last_checkpoint_only_finishes(
    sft: Trained, tmp_path: Path, inputs: dict[str, Path]
) -> None:
    left_by_a_kill(sft, tmp_path, STEPS)
    again = run_train(tmp_path, sft.config, inputs)
    assert not (tmp_path / "logs").exists(), "a trainer was started"
    assert contents(again.output) == contents(sft.output)


def test_metrics_of_all_steps_do_not_make_an_earlier_checkpoint_the_last(
    sft: Trained, tmp_path: Path, inputs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill between the last step and the writing of its weights."""
    output = left_by_a_kill(sft, tmp_path, STEPS - 4)
    given: list[str] = []

    def started(*_: Any) -> None:
        given.append((output / "mindformers.yaml").read_text())

    monkeypatch.setattr(worker, "run_worker", started)
    run_train(tmp_path, sft.config, inputs)
    assert "resume_training: true" in given[0]
    assert "load_checkpoint: work/resume/policy_rank_0-1_20.safetensors" in given[0]


@pytest.mark.slow
def test_two_ranks_with_unequal_segments_are_one_process(
    sft: Trained, tmp_path: Path, inputs: dict[str, Path]
) -> None:
    """Killed on the way and run again, too: no rank outlives the runner."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = config_of(data_parallel=2)
    segments = [[len(row["rewards"]) for row in sft.batch(step)] for step in range(1, 5)]
    assert any(first != second for first, second in segments)
    kill_at_step(tmp_path, config, inputs, 7, master_port=port)
    both = run_train(tmp_path, config, inputs, master_port=port)
    for ours, alone in zip(both.records, sft.records, strict=True):
        # Float32 sums in another order, step upon step.
        figures = ("p", "weight", "entropy", "length")
        sides = [f"{side}_{figure}" for side in ("correct", "incorrect") for figure in figures]
        for key in ("loss", "grad_norm", "learning_rate", *sides):
            if alone[key] is None:  # no such response in the step
                assert ours[key] is None
                continue
            assert ours[key] == pytest.approx(alone[key], rel=2e-4), (alone["step"], key)
        for key in ("step", "tokens", "correct_count", "incorrect_count"):
            assert ours[key] == alone[key], (alone["step"], key)
    ours, alone = (
        load_file(run.output / "checkpoint" / "model.safetensors") for run in (both, sft)
    )
    assert ours.keys() == alone.keys()
    for name in alone:
        assert ours[name] == pytest.approx(alone[name], abs=2e-4), name


@pytest.mark.slow
def test_balanced_ranks_train_the_same_steps(tmp_path: Path, inputs: dict[str, Path]) -> None:
    """Killed on the way and run again, too: the order is the same."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    plain = config_of(global_batch_size=4, micro_batch_size=4)
    config = config_of(global_batch_size=4, micro_batch_size=2, data_parallel=2, balance_rows=True)
    alone = run_train(tmp_path / "alone", plain, inputs)
    kill_at_step(tmp_path, config, inputs, 7, master_port=port)
    both = run_train(tmp_path, config, inputs, master_port=port)
    orders = [
        np.array(json.loads((run.output / "data_order.json").read_text())["order"]).reshape(-1, 4)
        for run in (alone, both)
    ]
    assert (orders[0] != orders[1]).any()
    assert (np.sort(orders[0]) == np.sort(orders[1])).all()
    for ours, whole in zip(both.records, alone.records, strict=True):
        assert ours["loss"] == pytest.approx(whole["loss"], rel=2e-4)
        assert ours["grad_norm"] == pytest.approx(whole["grad_norm"], rel=2e-4)
    before, after = both.counts.info["slowest_rank_over_mean"]
    assert 1 <= after < before
    assert "slowest_rank_over_mean" not in alone.counts.info


@pytest.mark.slow
def test_steps_that_overflow_are_skipped_and_counted(
    sft: Trained, tmp_path: Path, inputs: dict[str, Path]
) -> None:
    """A CPU computes in float32, so the scale is one that overflows that: 2^127."""
    scale = {"runner_wrapper": {"scale_sense": {"loss_scale_value": 2.0**127}}}
    config = config_of(precision="float16", max_steps=5, mindformers=scale)
    trained = run_train(tmp_path, config, inputs)
    records = trained.records
    skipped = [record["overflow"] for record in records]
    count = sum(skipped)
    assert 0 < count < 5 and skipped == [1] * count + [0] * (5 - count)
    assert [record["loss_scale"] for record in records[:count]] == [
        2.0 ** (126 - place) for place in range(count)
    ]
    # Unchanged weights have the loss of an untrained model on each skipped step's rows.
    for step in range(1, count + 2):
        expected = torch_losses(inputs["policy"], trained.batch(step))["sft"]
        assert records[step - 1]["loss"] == pytest.approx(expected, rel=1e-5)
    # The schedule waits for the first step that counts.
    assert records[count]["learning_rate"] == sft.records[0]["learning_rate"]
    assert trained.counts.info["skipped_steps"] == count
    assert f"{count} of 5 steps were skipped for overflow." in trained.context.warnings


def test_rows_of_another_length_or_too_few_are_refused(
    tmp_path: Path, inputs: dict[str, Path]
) -> None:
    with pytest.raises(StageError, match="packed to 32 tokens, train.seq_length is 64"):
        run_train(tmp_path / "a", config_of(seq_length=64), inputs)
    few = {**inputs, "packs": write_packs(tmp_path / "packs", [5, 9])}
    with pytest.raises(StageError, match="1 packed rows x 1 epochs do not fill one global batch"):
        run_train(tmp_path / "b", config_of(epochs=1), few)


def test_packs_that_are_not_there_are_an_error_of_ours(
    tmp_path: Path, inputs: dict[str, Path]
) -> None:
    with pytest.raises(StageError, match=r"absent.*accounting\.json"):
        run_train(tmp_path, config_of(), {**inputs, "packs": tmp_path / "absent"})


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (
            "topr",
            "topr needs old_log_probs_mean, and the packed rows have no .* `old_log_probs` makes",
        ),
        ("nft", "nft needs old_log_probs"),
        ("grpo", "grpo needs advantages, and 2 values of advantages are missing.*`select`"),
    ],
)
def test_a_loss_whose_columns_the_data_lack_is_refused(
    tmp_path: Path, inputs: dict[str, Path], loss: str, words: str
) -> None:
    without = write_packs(tmp_path / "packs", SIZES, without_advantage=(1, 4))
    with pytest.raises(StageError, match=words):
        run_train(tmp_path, config_of(loss=loss), {**inputs, "packs": without})
    assert not (tmp_path / "logs").exists()


def test_grpo_on_policy_needs_advantages_and_no_old_log_probs(tmp_path: Path) -> None:
    on_policy, whole, part = {"on_policy": 1.0}, tmp_path / "whole", tmp_path / "part"
    write_packs(whole, SIZES)
    check_columns("grpo", on_policy, whole)
    with pytest.raises(StageError, match="grpo needs old_log_probs, and the packed rows have no"):
        check_columns("grpo", {}, whole)
    write_packs(part, SIZES, without_advantage=(1, 4))
    with pytest.raises(StageError, match="grpo needs advantages, and 2 values"):
        check_columns("grpo", on_policy, part)


def test_several_hosts_are_not_started_from_here(tmp_path: Path, inputs: dict[str, Path]) -> None:
    with pytest.raises(StageError, match="names 2 hosts.*--start ssh"):
        run_train(tmp_path, config_of(), inputs, hosts=["node01", "node02"])


def test_weights_that_are_cut_off_are_refused_before_anything_starts(
    tmp_path: Path, inputs: dict[str, Path]
) -> None:
    policy = tmp_path / "policy"
    policy.mkdir()
    for path in inputs["policy"].iterdir():
        (policy / path.name).write_bytes(path.read_bytes())
    whole = (policy / "model.safetensors").read_bytes()
    (policy / "model.safetensors").write_bytes(whole[:-1])
    with pytest.raises(StageError, match=r"policy/model\.safetensors: .* truncated"):
        run_train(tmp_path, config_of(), {**inputs, "policy": policy})
    assert not (tmp_path / "logs").exists()
