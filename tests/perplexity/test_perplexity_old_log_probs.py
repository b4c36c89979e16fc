"""The old policy's log-probs: by the trainer's own model, and as transformers has them."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from mindspore import Tensor
from train_helpers import LENGTH, PLACES, train_config, write_policy, write_samples
from transformers import AutoModelForCausalLM

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.pack.arrow_folder import read_arrow_folder
from pcl_reasoner.pack.config import PackConfig
from pcl_reasoner.pack.stage import pack
from pcl_reasoner.perplexity.old_log_probs_stage import OldLogProbsConfig, old_log_probs
from pcl_reasoner.train.stage import train
from pcl_reasoner.train.stopping import read_steps
from pcl_reasoner.worker.forward import Writer, full_batches

SIZES = [5, 9, 14, 20, 7, 25, 30, 11, 6, 17]
CONFIG = OldLogProbsConfig(
    seq_length=LENGTH,
    max_segments=PLACES,
    rows=2,
    device="CPU",
    precision="float32",
    compressed_mask=False,
)


def run_old_log_probs(
    inputs: dict[str, Path], output: Path, **placement: Any
) -> list[dict[str, Any]]:
    output.mkdir(exist_ok=True)
    context = StageContext("old_log_probs", output / "quarantined.jsonl", Placement(**placement))
    counts = old_log_probs(CONFIG, inputs, output, context)
    assert (counts.read, counts.kept) == (len(SIZES), len(SIZES))
    return read_arrow_folder(output).to_pylist()


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("inputs")
    return {
        "policy": write_policy(folder / "policy"),
        "samples": write_samples(folder / "samples", SIZES),
    }


@pytest.fixture(scope="module")
def made(inputs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("old_log_probs") / "old_log_probs.partial"
    run_old_log_probs(inputs, output)
    return output


def test_log_probs_are_transformers_own_one_a_token(inputs: dict[str, Path], made: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(inputs["policy"], torch_dtype=torch.float64)
    before = read_arrow_folder(inputs["samples"]).to_pylist()
    after = read_arrow_folder(made).to_pylist()
    assert [{key: row[key] for key in before[0]} for row in after] == before
    for row in after:
        with torch.no_grad():
            logits = model.eval()(torch.tensor([row["input_ids"]])).logits[0]
        log_probs = logits.log_softmax(-1).numpy()
        expected = [
            log_probs[i - 1, token] if row["labels"][i] != -100 else 0.0
            for i, token in enumerate(row["input_ids"])
        ]
        assert row["old_log_probs"] == pytest.approx(expected, abs=2e-5)
        trained = [value for value in row["old_log_probs"] if value != 0]
        assert row["old_log_probs_mean"] == pytest.approx(np.mean(trained), rel=1e-6)


def test_the_folder_is_tokenizes_with_two_columns_and_no_work(
    inputs: dict[str, Path], made: Path
) -> None:
    names = {path.name for path in made.iterdir()}
    kept = {path.name for path in inputs["samples"].iterdir()}
    assert names == kept
    assert (made / "meta.json").read_bytes() == (inputs["samples"] / "meta.json").read_bytes()


def test_rows_of_a_cut_off_file_are_made_again_by_whole_batches(tmp_path: Path) -> None:
    path = tmp_path / "values.f32"
    assert full_batches(path, 8, 2) == 0
    # Two batches of two rows of 8 bytes, one row of the third, and half a row.
    path.write_bytes(bytes(8 * 4 + 8 + 4))
    sums = tmp_path / "values.crc32"
    sums.write_bytes(5 * zlib.crc32(bytes(8)).to_bytes(4, "little") + b"ab")
    assert full_batches(path, 8, 2) == 4
    Writer(path, tmp_path / "progress.jsonl", 4, 8)
    assert (path.stat().st_size, sums.stat().st_size) == (32, 16)
    sums.write_bytes(sums.read_bytes()[:12])  # the CRC of the last row was not written any more
    assert full_batches(path, 8, 2) == 2


def test_rows_from_a_damaged_one_on_are_made_again(tmp_path: Path) -> None:
    path, sums = tmp_path / "values.f32", tmp_path / "values.crc32"
    writer = Writer(path, tmp_path / "progress.jsonl", 0, 8)
    labels = np.array([[1, -100], [1, 1]])
    for value in (1, 2, 3):
        # One value per label, in two rows: [rows, labels].
        found = Tensor(np.full((2, 2), value, np.float32))
        writer.append((2, {"labels": labels}), [found])
    assert np.fromfile(path, np.float32).reshape(6, 2).tolist() == [
        [value] * 2 for value in (1.0, 1.0, 2.0, 2.0, 3.0, 3.0)
    ]
    assert full_batches(path, 8, 2) == 6
    data = bytearray(path.read_bytes())
    data[3 * 8 + 5] ^= 4  # in the fourth row
    path.write_bytes(data)
    assert full_batches(path, 8, 2) == 2
    Writer(path, tmp_path / "progress.jsonl", 2, 8)
    assert (path.stat().st_size, sums.stat().st_size) == (16, 8)


@pytest.mark.slow
def test_a_run_that_was_cut_off_goes_on_to_the_same_bytes(
    inputs: dict[str, Path], made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pcl_reasoner.train import worker

    output = tmp_path / "old_log_probs.partial"
    real = worker.run_worker

    def cut(arguments: list[str], folder: Path, *others: Any) -> None:
        real(arguments, folder, *others)
        values = folder / "values.f32"
        values.write_bytes(values.read_bytes()[: 4 * LENGTH * 3 + 5])
        raise StageError("cut off")

    with monkeypatch.context() as patch:
        patch.setattr(worker, "run_worker", cut)
        with pytest.raises(StageError, match="cut off"):
            run_old_log_probs(inputs, output)
    assert sorted(path.name for path in output.iterdir()) == ["work"]
    run_old_log_probs(inputs, output)
    for path in made.iterdir():
        assert (output / path.name).read_bytes() == path.read_bytes(), path.name


@pytest.mark.slow
def test_training_starts_at_the_old_log_probs_means(
    inputs: dict[str, Path], made: Path, tmp_path: Path
) -> None:
    """Packed from it, GRPO's first step sees ratios of 1: no clip, and m is the old mean."""
    packs = tmp_path / "packs"
    packs.mkdir()
    context = StageContext("pack", packs / "apart.jsonl")
    pack(PackConfig(seq_length=LENGTH, max_segments=PLACES), {"samples": made}, packs, context)
    config = train_config(loss="grpo", max_steps=2, learning_rate=1e-3)
    output = tmp_path / "train.partial"
    output.mkdir()
    given = {"packs": packs, "policy": inputs["policy"]}
    train(config, given, output, StageContext("train", output / "apart.jsonl"))
    first = read_steps(output / "metrics.jsonl")[0]
    rows = read_arrow_folder(packs).to_pylist()
    order = json.loads((output / "data_order.json").read_text())["order"][:2]
    segments = [
        (reward, mean, advantage)
        for row in order
        for reward, mean, advantage in zip(
            rows[row]["rewards"],
            rows[row]["old_log_probs_mean"],
            rows[row]["advantages"],
            strict=True,
        )
    ]
    for verdict, chosen in (
        ("correct", [s for s in segments if s[0] >= 0.5]),
        ("incorrect", [s for s in segments if s[0] < 0.5]),
    ):
        assert first[f"{verdict}_count"] == len(chosen) > 0
        assert first[f"{verdict}_m"] == pytest.approx(np.mean([s[1] for s in chosen]), rel=1e-6)
        # At a ratio of 1 the gradient by log π is −A / T for each of T tokens, times 1 / N.
        weight = sum(abs(s[2]) for s in chosen) / len(segments)
        assert first[f"{verdict}_weight"] == pytest.approx(weight, rel=1e-5)
    assert first["clipped"] == 0.0
    # −mean A at a ratio of 1.
    assert first["loss"] == pytest.approx(-np.mean([s[2] for s in segments]), abs=1e-6)


def test_layouts_that_this_stage_cannot_run_are_refused() -> None:
    settings = {**CONFIG.model_dump(), "device": "Ascend", "model_parallel": 8}
    context = {"placement": Placement(hosts=["a", "b"], devices_per_host=8)}
    OldLogProbsConfig.model_validate(settings, context=context)
    with pytest.raises(ValueError, match="devices_per_host, got 16 for 8"):
        OldLogProbsConfig.model_validate({**settings, "data_parallel": 2}, context=context)
    with pytest.raises(ValueError, match="got 8 ranks on a CPU"):
        OldLogProbsConfig.model_validate({**settings, "device": "CPU"})
    settings |= {"model_parallel": 3, "sequence_parallel": True}
    with pytest.raises(ValueError, match="must be a multiple of model_parallel"):
        OldLogProbsConfig.model_validate(settings)
