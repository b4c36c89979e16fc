"""Makes the rounds of a rehearsal of on-policy training, and merges the ranks' weights after each.

    4 rows per micro-step of the ranks, 12 of the one process
    round 0   11 rows   ranks: 3 micro-steps, the last with an empty row   one process: 1 micro-step
    round 1    4 rows          1 micro-step                                             1
    round 2    6 rows          2 micro-steps, the last with 2 empty rows                1

All rounds are published before training starts, so nobody waits for rows.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.pack.arrow_folder import read_arrow_folder, write_arrow_folder
from pcl_reasoner.rehearse.scale import Scaled, scale
from pcl_reasoner.rl.hand_over import FOLDER, HandOver
from pcl_reasoner.rl.render import ROUNDS
from pcl_reasoner.rl.training import write_round_yaml
from pcl_reasoner.rounds.config import RlConfig
from pcl_reasoner.rounds.files import ROWS, Published, publish, round_folder, write_end
from pcl_reasoner.train.config import TrainConfig
from pcl_reasoner.weights.model_config import ModelShape

MICRO_STEPS = (3, 1, 2)
"""Micro-steps of the first rounds on the ranks; later rounds repeat them."""
_OWN = {"loss_parameters"}
"""Fields whose values in ``RlConfig.training`` are not those of the stage."""


def scale_rounds(config: RlConfig, shape: ModelShape | None, ranks: int, rounds: int) -> Scaled:
    """Scale a stage ``rl`` down.

    Args:
        config: The recipe's settings, for Ascend.
        shape: The recipe's model, if known.
        ranks: Largest number of ranks.
        rounds: Optimizer updates.

    Raises:
        InputError: As `scale` does.
    """
    scaled = scale(config.training, shape, ranks, rounds)
    return replace(scaled, rounds=_with(config, scaled.config), micro_steps=max(MICRO_STEPS))


def _with(config: RlConfig, training: TrainConfig) -> RlConfig:
    """Return a stage's settings with the machine and the sizes of a training."""
    both = RlConfig.model_fields.keys() & TrainConfig.model_fields.keys() - _OWN
    tokens = training.seq_length
    updates = {
        **{name: getattr(training, name) for name in both},
        "rows": training.global_batch_size,
        "row_tokens": tokens,
        "max_model_len": tokens,
        "max_rounds": training.max_steps,
        "schedule": "constant",
        "warmup_rounds": 0,
        "checkpoint_rounds": 1,
        "plateau": None,
    }
    return config.model_copy(update=updates)


def row_counts(scaled: Scaled) -> list[int]:
    """Return the rows of each round; most rounds do not fill their last micro-step."""
    rows, rounds = scaled.config.global_batch_size, scaled.config.max_steps or 0
    empty = (1, 0, rows // 2)
    return [
        MICRO_STEPS[number % len(MICRO_STEPS)] * rows - empty[number % len(empty)]
        for number in range(rounds)
    ]


def write_run(scaled: Scaled, training: TrainConfig, packed: Path, policy: Path, run: Path) -> None:
    """Write what a run needs: its rounds, all of them published, and mindformers.yaml.

    Args:
        scaled: The rehearsal.
        training: The layout of this run.
        packed: The rows of all rounds.
        policy: The weights before round 0.
        run: The run's folder.
    """
    assert scaled.rounds is not None
    config, rounds, begin = _with(scaled.rounds, training), run / ROUNDS, 0
    table = read_arrow_folder(packed)
    for number, count in enumerate(row_counts(scaled)):
        rows = table.slice(begin, count)
        folder = round_folder(rounds, number) / ROWS
        folder.mkdir(parents=True)
        write_arrow_folder(folder, rows.schema, rows.to_batches(max_chunksize=1))
        segments = sum(rows["trained_segments"].to_pylist())
        publish(rounds, Published(number, -(-count // config.rows), segments, count))
        begin += count
    write_end(rounds, len(row_counts(scaled)))
    write_round_yaml(config, policy, run)


def hand_over(scaled: Scaled, training: TrainConfig, policy: Path, run: Path) -> None:
    """Merge the ranks' slices after each round into a Hugging Face folder, as the stage does.

    Args:
        scaled: The rehearsal.
        training: The layout of this run.
        policy: The weights before round 0.
        run: The run's folder.

    Raises:
        StageError: Slices are missing, or do not form complete tensors.
    """

    def missing() -> None:
        raise StageError(f"{run}: a rank wrote no weights after a round. Read the logs.")

    assert scaled.rounds is not None
    config = _with(scaled.rounds, training).model_copy(update={"weights_dtype": "float32"})
    weights = HandOver(run, policy, config, warn=lambda text: None)
    for folder in sorted((run / ROUNDS).glob("[0-9]*")):
        weights.take(int(folder.name), missing)


def weight_errors(one: Path, ranks: Path, update: float) -> list[float]:
    """Return how far the weights of two runs are apart after each round.

    Args:
        one: A run's folder, after `hand_over`.
        ranks: The other run's folder.
        update: The learning rate, which is the size of AdamW's first update.

    Returns:
        For each round the largest root mean square of a tensor's differences, in updates; infinite
        if the runs have other tensors or a number is not finite.
    """
    folders = sorted((one / ROUNDS).glob(f"[0-9]*/{FOLDER}"))
    return [_error(folder, ranks / folder.relative_to(one), update) for folder in folders]


def _error(one: Path, ranks: Path, update: float) -> float:
    expected, found = _tensors(one), _tensors(ranks)
    if {name: value.shape for name, value in expected.items()} != {
        name: value.shape for name, value in found.items()
    }:
        return float("inf")
    errors = [
        float(np.sqrt(((expected[name].astype(np.float64) - found[name]) ** 2).mean()))
        for name in expected
    ]
    largest = max(errors) / update
    return largest if np.isfinite(errors).all() else float("inf")


def _tensors(folder: Path) -> dict[str, npt.NDArray[np.float32]]:
    from safetensors.numpy import load_file

    return {
        name: value
        for file in sorted(folder.glob("*.safetensors"))
        for name, value in load_file(file).items()
    }
