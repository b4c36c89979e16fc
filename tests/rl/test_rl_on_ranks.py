"""The training process of a stage rl as ranks: it waits for rounds, is killed, and resumes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rehearsals import on_ranks, round_config

from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.rehearse.rounds import row_counts, scale_rounds, write_run
from pcl_reasoner.rehearse.rows import write_rows
from pcl_reasoner.rehearse.scale import Scaled
from pcl_reasoner.rehearse.weights import write_policy
from pcl_reasoner.rl.hand_over import HASH, HandOver
from pcl_reasoner.rl.render import ROUNDS
from pcl_reasoner.rl.training import Training
from pcl_reasoner.rounds.config import RlConfig
from pcl_reasoner.rounds.files import END, ROUND, round_folder
from pcl_reasoner.serving.serve_command import free_port
from pcl_reasoner.weights.slices import rank_files

pytestmark = pytest.mark.long
ROUND_COUNT = 4
FORGOTTEN = ("round_gradients", "last_of_round", "accu_grads")


class _Killed(Exception):
    """Stands for the end of the runner's process."""


def scaled_stage() -> tuple[Scaled, RlConfig]:
    """DP 2 x PP 2 with sharded optimizer states, and a checkpoint after every second round."""
    stage = round_config(2, 1, 2, optimizer_shard=True)
    scaled = scale_rounds(stage, None, 8, ROUND_COUNT)
    assert scaled.rounds is not None
    return scaled, scaled.rounds.model_copy(update={"checkpoint_rounds": 2})


def prepared(folder: Path, scaled: Scaled) -> Path:
    """A run's folder with all rounds, beside the policy."""
    if not (folder.parent / "policy").exists():
        write_policy(folder.parent / "policy", scaled.shape, 0)
        write_rows(folder.parent / "rows", scaled.config, None, sum(row_counts(scaled)))
    folder.mkdir()
    write_run(scaled, scaled.config, folder.parent / "rows", folder.parent / "policy", folder)
    return folder


def train(config: RlConfig, output: Path, context: StageContext, last: int, kill: bool) -> int:
    """Train until a round's weights are handed over; return the first round that is made."""
    policy = output.parent / "policy"
    weights = HandOver(output, policy, config, context.warn)
    first = -1
    try:
        with Training(config, {"policy": policy}, output, context, weights.discard) as training:
            first = training.first
            for number in range(first, last + 1):
                if number == first + 1:
                    publish(output, number)  # the ranks wait for it
                weights.take(number, training.check)
            if kill:
                raise _Killed
    except _Killed:
        pass
    return first


def hide(output: Path, number: int) -> None:
    """Take back the publication of a round and of all later ones, and of the end."""
    (output / ROUNDS / END).unlink()
    for late in range(number, ROUND_COUNT):
        file = round_folder(output / ROUNDS, late) / ROUND
        file.rename(file.with_suffix(".hidden"))


def publish(output: Path, number: int) -> None:
    """Publish a round that was hidden, and after the last one the end."""
    file = round_folder(output / ROUNDS, number) / ROUND
    if file.with_suffix(".hidden").exists():
        file.with_suffix(".hidden").rename(file)


def hashes(output: Path) -> list[str]:
    """The hash of the weights after each round."""
    folders = [round_folder(output / ROUNDS, number) for number in range(ROUND_COUNT)]
    return [json.loads((one / HASH).read_text())["sha256"] for one in folders]


def test_ranks_wait_for_rounds_and_go_on_after_a_kill(ranks_can_run: None, tmp_path: Path) -> None:
    """Killed after round 2, with a checkpoint of rounds 0 and 1: round 2 is made again, equally."""
    scaled, config = scaled_stage()
    whole, killed = prepared(tmp_path / "whole", scaled), prepared(tmp_path / "killed", scaled)
    with on_ranks(config, whole, free_port()) as context:
        assert train(config, whole, context, ROUND_COUNT - 1, kill=False) == 0
    hide(killed, 1)
    with on_ranks(config, killed, free_port()) as context:
        publish(killed, 2)
        assert train(config, killed, context, 2, kill=True) == 0
    files = rank_files(killed / "work" / "checkpoint")
    assert len(files) == 4
    from safetensors import safe_open

    for file in files.values():
        with safe_open(file, framework="np") as opened:
            names = list(opened.keys())
        assert not [name for name in names if name.startswith(FORGOTTEN)]
    publish(killed, 3)
    (killed / ROUNDS / END).write_text(json.dumps({"rounds": ROUND_COUNT}) + "\n")
    with on_ranks(config, killed, free_port()) as context:
        assert train(config, killed, context, ROUND_COUNT - 1, kill=False) == 2
    assert hashes(killed) == hashes(whole)
    lines = [(run / "metrics.jsonl").read_text() for run in (whole, killed)]
    assert lines[0] == lines[1]
    assert [json.loads(line)["step"] for line in lines[0].splitlines()] == [1, 2, 3, 4]
