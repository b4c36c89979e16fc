"""``python -m pcl_reasoner.worker`` takes V1's published YAML as it is, in one process on a CPU."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from paths import HELPERS
from safetensors.numpy import load_file
from train_helpers import LENGTH, VOCABULARY, write_policy
from transformers import AutoModelForCausalLM

from pcl_reasoner.core.errors import InputError
from pcl_reasoner.train.worker import environment
from pcl_reasoner.worker.entry import import_mindformers, read_config

ROWS = 4


def published_rows(folder: Path) -> dict[str, Any]:
    """As V1's packing left them: labels shifted, two segments and padding; all rows are equal."""
    ids = torch.randint(3, VOCABULARY, (LENGTH,), generator=torch.Generator().manual_seed(2))
    labels = [-100] * 3 + ids[4:12].tolist() + [-100] * 5 + ids[17:30].tolist() + [-100] * 3
    row = {"input_ids": ids.tolist(), "labels": labels, "actual_seq_len": [12, 30]}
    Dataset.from_list([row] * ROWS).save_to_disk(str(folder))
    return row


def cross_entropy(policy: Path, row: dict[str, Any]) -> float:
    model = AutoModelForCausalLM.from_pretrained(policy).eval()
    found = []
    for start, end in ((0, 12), (12, 30)):
        with torch.no_grad():
            log_probs = model(torch.tensor([row["input_ids"][start:end]])).logits[0].log_softmax(-1)
        labels = row["labels"][start:end]
        found += [log_probs[i, label] for i, label in enumerate(labels) if label != -100]
    return float(-torch.stack(found).mean())


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], str]:
    """The folder that it ran in, its row, and what it printed."""
    folder = tmp_path_factory.mktemp("v1")
    policy = write_policy(folder / "policy")
    row = published_rows(folder / "packs")
    shutil.copy(HELPERS / "published_v1.yaml", folder / "v1.yaml")
    command = [sys.executable, "-m", "pcl_reasoner.worker", "v1.yaml", "--device", "CPU"]
    overrides = [
        f"load_checkpoint={policy}",
        f"train_dataset.data_loader.path={folder / 'packs'}",
        "runner_config.epochs=2",
    ]
    done = subprocess.run(
        [*command, *overrides],
        cwd=folder,
        env=environment({}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return folder, row, done.stdout + done.stderr


def test_it_trains(ran: tuple[Path, dict[str, Any], str]) -> None:
    folder, row, printed = ran
    losses = [float(found) for found in re.findall(r"loss:\[(\d+\.\d+)/", printed)]
    assert len(losses) == 2 * ROWS
    assert losses[0] == pytest.approx(cross_entropy(folder / "policy", row), rel=1e-4)
    assert losses[-1] < losses[0]


def test_it_leaves_a_checkpoint_of_all_weights(ran: tuple[Path, dict[str, Any], str]) -> None:
    folder = ran[0]
    [checkpoint] = (folder / "output" / "checkpoint" / "rank_0").glob("*.safetensors")
    held = load_file(checkpoint)
    before = load_file(folder / "policy" / "model.safetensors")
    assert (held["lm_head.weight"] != before["lm_head.weight"]).any()
    assert held["model.layers.0.feed_forward.w2.weight"].shape == (64, 192)


def test_it_says_what_it_changed(ran: tuple[Path, dict[str, Any], str]) -> None:
    printed = ran[2]
    for change in (
        "use_parallel: True -> False",
        "parallel_config.model_parallel: 8 -> 1",
        "model.model_config.compute_dtype: bfloat16 -> float32",
        "context.ascend_config: left out",
    ):
        assert f"changed for the CPU: {change}\n" in printed
    assert (
        "changed for MindFormers 1.8.0: data_loader.path -> data_loader.dataset_path\n" in printed
    )


PUBLISHED = str(HELPERS / "published_v1.yaml")
DENSE = "train_dataset.construct_args_key=[input_ids, labels, position_ids, attention_mask]"
MODEL = "model.model_config"


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (
            [f"{MODEL}.use_flash_attention=False", DENSE],
            "use_flash_attention is False, and the data contain attention_mask",
        ),
        (
            [f"{MODEL}.use_eod_attn_mask_compression=False"],
            "use_eod_attn_mask_compression is False, and the data contain actual_seq_len",
        ),
    ],
)
def test_masks_that_mindformers_gets_wrong_are_refused(overrides: list[str], words: str) -> None:
    import_mindformers()
    with pytest.raises(InputError, match=rf"published_v1.yaml: .*{words}"):
        read_config(PUBLISHED, overrides, "Ascend")


def test_the_published_masks_are_taken_and_a_cpu_gets_flash_attention() -> None:
    import_mindformers()
    config, _ = read_config(PUBLISHED, [], "Ascend")
    assert config.model.model_config.use_flash_attention is True
    config, changed = read_config(PUBLISHED, [f"{MODEL}.use_flash_attention=False"], "CPU")
    assert config.model.model_config.use_flash_attention is True
    assert f"for the CPU: {MODEL}.use_flash_attention: False -> True" in changed


def test_mindformers_tensorboard_gets_the_key_that_it_fails_without(tmp_path: Path) -> None:
    import_mindformers()
    own = tmp_path / "own.yaml"
    own.write_text(Path(PUBLISHED).read_text() + "\ntensorboard: {tensorboard_dir: curves}\n")
    assert read_config(str(own), [], "Ascend")[0].runner_wrapper.scale_sense == 1.0
    assert "scale_sense" not in read_config(PUBLISHED, [], "Ascend")[0].runner_wrapper


def test_a_wrong_override_or_file_is_named() -> None:
    import_mindformers()
    with pytest.raises(InputError, match="modle.x=1: expected key.key=value"):
        read_config(PUBLISHED, ["modle.x=1"], "CPU")
    with pytest.raises(InputError, match="absent.yaml: no such file"):
        read_config("absent.yaml", [], "CPU")
