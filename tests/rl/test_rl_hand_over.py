"""The weights after an update become a folder that samplers load: whole, or not at all."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import numpy as np
import pytest
from rl_helpers import rl_settings
from safetensors.numpy import load_file, save_file
from train_helpers import write_policy

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.rl.hand_over import HandOver
from pcl_reasoner.rl.render import ROUNDS, WEIGHTS
from pcl_reasoner.rounds.config import RlConfig
from pcl_reasoner.rounds.files import round_folder, slices_file
from pcl_reasoner.weights import conversion
from pcl_reasoner.weights.seals import seal_files


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_policy(tmp_path_factory.mktemp("policy") / "policy")


def hand_over(output: Path, policy: Path, same: bool = True) -> tuple[HandOver, list[str]]:
    warnings: list[str] = []
    (output / ROUNDS).mkdir(parents=True, exist_ok=True)
    changes = {} if same else {"device": "Ascend", "compressed_mask": True}
    config = RlConfig.model_validate(rl_settings(**changes))
    return HandOver(output, policy, config, warnings.append), warnings


def write_slices(output: Path, policy: Path, number: int, added: float = 0.0) -> None:
    """As the only rank writes them, with something added to each weight."""
    round_folder(output / ROUNDS, number).mkdir(parents=True, exist_ok=True)
    file = slices_file(output / WEIGHTS, number, 0)
    file.parent.mkdir(parents=True, exist_ok=True)
    conversion.write_mindformers(policy, file)
    moved = {name: one + np.float32(added) for name, one in load_file(file).items()}
    save_file(moved, file)


def never() -> None:
    """Training has not ended."""


def weights_in(folder: Path) -> dict[str, np.ndarray]:
    return load_file(folder / "model.safetensors")


def test_the_folder_has_the_trained_weights_and_the_policys_other_files(
    tmp_path: Path, policy: Path
) -> None:
    weights, _ = hand_over(tmp_path, policy)
    write_slices(tmp_path, policy, 0, added=0.25)
    assert weights.before(0) == policy and not weights.is_there(0)
    weights.take(0, never)
    folder = weights.before(1)
    assert weights.is_there(0) and folder == tmp_path / "rounds" / "00000" / "weights"
    before, after = weights_in(policy), weights_in(folder)
    assert before.keys() == after.keys()
    assert all((after[name] == before[name] + np.float32(0.25)).all() for name in before)
    for name in ("config.json", "generation_config.json", "tokenizer.json"):
        assert (folder / name).read_bytes() == (policy / name).read_bytes()
    assert not (folder.parent / ".weights").exists()


@pytest.mark.parametrize("name", ["weights", "slices"])
def test_weights_that_changed_while_nobody_ran_are_found(
    tmp_path: Path, policy: Path, name: str
) -> None:
    weights, _ = hand_over(tmp_path, policy)
    write_slices(tmp_path, policy, 0)
    slices = slices_file(tmp_path / WEIGHTS, 0, 0)
    seal_files(slices.parent)
    weights.take(0, never)
    folder = weights.before(1)
    file = folder / "model.safetensors" if name == "weights" else slices
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    resumed, _ = hand_over(tmp_path, policy)
    with pytest.raises(StageError, match=f"{file.parent}.*: changed after .* Delete {tmp_path} to"):
        if name == "weights":
            resumed.before(1)
        else:
            resumed.take(0, never)


def test_the_same_update_again_is_compared(tmp_path: Path, policy: Path) -> None:
    weights, _ = hand_over(tmp_path, policy)
    write_slices(tmp_path, policy, 0)
    weights.take(0, never)
    file = weights.before(1) / "model.safetensors"
    kept = file.stat().st_mtime_ns
    weights.take(0, never)
    assert file.stat().st_mtime_ns == kept
    write_slices(tmp_path, policy, 0, added=1e-3)
    with pytest.raises(StageError, match=r"round 0: its update was made again.*On a CPU"):
        weights.take(0, never)
    assert file.stat().st_mtime_ns == kept


@pytest.mark.parametrize("is_used", [False, True])
def test_other_devices_warn_and_draw_the_next_round_by_the_new_weights(
    tmp_path: Path, policy: Path, is_used: bool
) -> None:
    weights, warnings = hand_over(tmp_path, policy, same=False)
    write_slices(tmp_path, policy, 0)
    weights.take(0, never)
    before = weights.sha_before(1)
    if is_used:
        published = round_folder(tmp_path / ROUNDS, 1) / "round.json"
        published.parent.mkdir()
        published.write_text("{}")
    write_slices(tmp_path, policy, 0, added=0.25)
    weights.take(0, never)
    (said,) = warnings
    assert "the weights differ" in said
    assert ("was sampled with the earlier" in said) == is_used
    added = weights_in(weights.before(1))["lm_head.weight"] - weights_in(policy)["lm_head.weight"]
    assert np.allclose(added, 0.0 if is_used else 0.25, atol=1e-6)
    # Responses of the open round that the earlier weights have drawn are thrown away by this hash.
    assert (weights.sha_before(1) == before) == is_used
    assert sorted(one.name for one in weights.before(1).parent.iterdir()) == [
        "weights",
        "weights.json",
    ]


def test_updates_that_a_lost_worker_made_again_are_compared_with_the_next_one(
    tmp_path: Path, policy: Path
) -> None:
    weights, _ = hand_over(tmp_path, policy)
    for number in (0, 1):
        write_slices(tmp_path, policy, number, added=number)
        weights.take(number, never)
        weights.forget(number, keep=2)
    weights.discard(1)
    write_slices(tmp_path, policy, 1, added=1.5)
    write_slices(tmp_path, policy, 2, added=2.0)
    with pytest.raises(StageError, match="round 1: its update was made again"):
        weights.take(2, never)
    # Made again to the same numbers, they are compared once.
    weights.discard(1)
    write_slices(tmp_path, policy, 1, added=1.0)
    write_slices(tmp_path, policy, 2, added=2.0)
    weights.take(2, never)
    assert weights.is_there(2)


def test_a_half_written_folder_is_never_there(tmp_path: Path, policy: Path) -> None:
    weights, _ = hand_over(tmp_path, policy)
    write_slices(tmp_path, policy, 0)
    half = tmp_path / "rounds" / "00000" / ".weights"
    half.mkdir()
    (half / "model.safetensors").write_bytes(b"half")
    (half / "other.json").write_text("{}")
    assert not weights.is_there(0)
    weights.take(0, never)
    assert weights_in(weights.before(1)).keys() == weights_in(policy).keys()
    assert not (weights.before(1) / "other.json").exists()


def test_slices_are_waited_for_as_long_as_training_runs(tmp_path: Path, policy: Path) -> None:
    weights, _ = hand_over(tmp_path, policy)
    looked = threading.Event()
    writer = threading.Thread(
        target=lambda: looked.wait(10) and write_slices(tmp_path, policy, 0), daemon=True
    )
    writer.start()
    weights.take(0, looked.set)
    assert weights.is_there(0) and looked.is_set()

    def ended() -> None:
        raise StageError("the training process ended before the last round.")

    with pytest.raises(StageError, match="ended before the last round"):
        weights.take(1, ended)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_is_not_needed_any_more_is_deleted(tmp_path: Path, policy: Path) -> None:
    weights, _ = hand_over(tmp_path, policy)
    for number in range(4):
        write_slices(tmp_path, policy, number)
        weights.take(number, never)
    weights.forget(3, keep=2)
    assert [number for number in range(4) if weights.is_there(number)] == [2, 3]
    assert names(tmp_path / WEIGHTS) == ["00003"]
    # The hashes stay: a round that is made again is compared with its own.
    hashes = [
        json.loads((tmp_path / "rounds" / f"{number:05d}" / "weights.json").read_text())["round"]
        for number in range(4)
    ]
    assert hashes == [0, 1, 2, 3]


def test_slices_of_rounds_that_are_made_again_are_deleted(tmp_path: Path, policy: Path) -> None:
    weights, _ = hand_over(tmp_path, policy)
    for number in range(4):
        write_slices(tmp_path, policy, number)
    weights.discard(2)
    assert names(tmp_path / WEIGHTS) == ["00000", "00001"]
