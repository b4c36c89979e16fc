"""The whole YAML of docs/mindformers.md, run as it stands there in every way that it tells."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from curve_helpers import read_events
from datasets import load_from_disk
from train_helpers import write_policy

from pcl_reasoner.train.worker import environment

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "mindformers.md").read_text()
OFFLINE = (
    *("-m", "pcl_reasoner.worker.preprocess"),
    *("--config", "finetune.yaml", "--save_path", "packs"),
)
EXAM = "How many ways are there to go along a grid of 6 rows and 8 columns?"


def block(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```$", PAGE, re.M | re.S)
    assert found
    return found[1]


def write_lines(file: Path, lines: list[dict[str, Any]]) -> None:
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def run(folder: Path, *arguments: str, **extra: str) -> str:
    """Run a Python program in the folder; what it printed."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**environment(extra), "LOG_MF_PATH": str(folder / "log")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout + done.stderr


def metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the page takes for given: a model, responses, their scores, an exam; 2 of 16 are in it.

    Every question has a correct attempt and one that scores 0.25.
    """
    folder = tmp_path_factory.mktemp("plain")
    write_policy(folder / "models" / "mine")
    (folder / "data").mkdir()
    write_lines(folder / "data" / "exam.jsonl", [{"id": "e1", "problem": EXAM}])
    questions = [EXAM, *(f"What is {number} + {number}?" for number in range(1, 8))]
    keys = [{"question": text, "attempt": attempt} for text in questions for attempt in (0, 1)]
    answer = "<think>It is so.</think><answer>\\boxed{{{}}}</answer>"
    responses = [{**key, "output": answer.format(n)} for n, key in enumerate(keys)]
    scores = [{**key, "score": (1.0, 0.25)[key["attempt"]]} for key in keys]
    write_lines(folder / "data" / "responses.jsonl", responses)
    write_lines(folder / "data" / "scores.jsonl", scores[::-1])
    (folder / "finetune.yaml").write_text(block("yaml"))
    (folder / "start.py").write_text(block("python"))
    return folder


@pytest.fixture(scope="module")
def offline(folder: Path) -> str:
    """What the offline command printed."""
    return run(folder, *OFFLINE)


@pytest.fixture(scope="module")
def by_entry(folder: Path) -> tuple[list[dict[str, Any]], str]:
    """Handlers while loading, by our entry module: its metrics, and what it printed."""
    printed = run(folder, "-m", "pcl_reasoner.worker", "--config", "finetune.yaml")
    return metrics(folder), printed


def test_the_offline_rows_are_those_of_loading(folder: Path, offline: str) -> None:
    from pcl_reasoner.worker.entry import import_mindformers

    import_mindformers()
    from pcl_reasoner.trainer.loader import PclPackedDataLoader

    loader = yaml.safe_load((folder / "finetune.yaml").read_text())["train_dataset"]["data_loader"]
    given = {key: value for key, value in loader.items() if key not in ("type", "auto_register")}
    loaded = {"path", "data_files", "split", "handler", "load_func"}
    rest = {key: value for key, value in given.items() if key not in loaded}
    before = Path.cwd()
    os.chdir(folder)
    try:
        sources: list[Any] = [
            PclPackedDataLoader(**given),
            PclPackedDataLoader(**rest, load_func="load_from_disk", path="packs"),
        ]
    finally:
        os.chdir(before)
    first, second = (
        list(source.create_dict_iterator(num_epochs=1, output_numpy=True)) for source in sources
    )
    assert len(first) == len(second) > 0
    for one, other in zip(first, second, strict=True):
        assert one.keys() == other.keys()
        for name, value in one.items():
            np.testing.assert_array_equal(value, other[name], err_msg=name)


def test_every_handler_says_what_it_did_and_the_rows_have_their_rewards(
    folder: Path, offline: str
) -> None:
    assert "DecontaminationHandler: 16 read, 14 kept; dropped: contaminated 2" in offline
    assert "InstructionHandler: 14 read, 14 kept; dropped: none" in offline
    rows = load_from_disk(str(folder / "packs"))
    rewards = [reward for row in rows for reward in row["rewards"]]
    advantages = [advantage for row in rows for advantage in row["advantages"]]
    assert sorted(rewards) == [0.25] * 7 + [1.0] * 7
    assert [(reward > 0.5, round(a, 6)) for reward, a in zip(rewards, advantages, strict=True)] == [
        (reward > 0.5, 1.0 if reward > 0.5 else -1.0) for reward in rewards
    ]
    assert not (folder / "packs.partial").exists()


def test_a_folder_that_is_there_is_not_overwritten(folder: Path, offline: str) -> None:
    done = subprocess.run(
        [sys.executable, *OFFLINE], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("packs: already exists")


def test_our_entry_trains_with_handlers_while_loading(
    folder: Path, by_entry: tuple[list[dict[str, Any]], str]
) -> None:
    records, printed = by_entry
    assert "DecontaminationHandler: 16 read, 14 kept; dropped: contaminated 2" in printed
    assert [record["step"] for record in records] == list(range(1, len(records) + 1))
    assert {"correct_m", "incorrect_m"} <= records[0].keys()
    # OPG: correct responses become likelier. The first rate of a warm-up is 0.
    assert records[-1]["correct_m"] > records[0]["correct_m"] + 0.5
    assert records[0]["learning_rate"] == 0.0


def test_checkpoints_come_every_three_steps_and_two_are_kept(
    folder: Path, by_entry: tuple[list[dict[str, Any]], str]
) -> None:
    last = len(by_entry[0])
    assert last == 7
    names = {path.stem for path in (folder / "output" / "checkpoint").rglob("*.safetensors")}
    assert names == {"policy_rank_0-1_6", "policy_rank_0-1_7"}


def test_tensorboard_has_the_curves_twice(
    folder: Path, by_entry: tuple[list[dict[str, Any]], str]
) -> None:
    mindformers = read_events(folder / "curves" / "mindformers")
    ours = read_events(folder / "curves" / "steps")
    for record in by_entry[0]:
        step = record["step"]
        assert mindformers["loss"][step] == pytest.approx(record["loss"], rel=1e-6)
        assert mindformers["grad-norm"][step] == pytest.approx(record["grad_norm"], rel=1e-6)
        for name, value in record.items():
            if name != "step" and value is not None:
                assert ours[name][step] == pytest.approx(value, rel=1e-6, abs=1e-30)


def test_mindformers_own_start_trains_alike_on_the_offline_rows(
    folder: Path, offline: str, by_entry: tuple[list[dict[str, Any]], str]
) -> None:
    value = yaml.safe_load((folder / "finetune.yaml").read_text())
    loader = value["train_dataset"]["data_loader"]
    for key in ("handler", "data_files", "split"):
        loader.pop(key)
    loader |= {"load_func": "load_from_disk", "path": "../packs"}
    value["load_checkpoint"] = "../models/mine"
    (folder / "own").mkdir()
    (folder / "own" / "packed.yaml").write_text(yaml.safe_dump(value))
    import pcl_reasoner.handlers as here

    run(folder / "own", "../start.py", "packed.yaml", REGISTER_PATH=next(iter(here.__path__)))
    assert metrics(folder / "own") == by_entry[0]
