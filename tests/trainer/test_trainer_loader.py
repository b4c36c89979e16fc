"""The loader: fixed order, weights of the global batch, ranks side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from train_helpers import LENGTH, PLACES, write_packs

from pcl_reasoner.pack.arrow_folder import read_arrow_folder
from pcl_reasoner.pack.order import balanced_order, data_order

SIZES = [5, 9, 14, 20, 7, 25, 30, 11, 6, 17, 22, 13, 8, 19, 28, 10]
GLOBAL, SEED, EPOCHS = 4, 3, 2


@pytest.fixture(scope="module")
def packs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_packs(tmp_path_factory.mktemp("packs") / "packs", SIZES)


def load(
    packs: Path, rank: int = 0, ranks: int = 1, scale: float = 1.0, balance: bool = False
) -> list[dict[str, Any]]:
    """What one rank's loader gives, row by row, by MindSpore's own iterator."""
    import mindformers  # noqa: F401

    from pcl_reasoner.trainer.loader import PclPackedDataLoader

    loader: Any = PclPackedDataLoader(
        num_shards=ranks,
        shard_id=rank,
        python_multiprocessing=False,
        load_func="load_from_disk",
        path=str(packs),
        packing="pack",
        adaptor_config={"compress_mask": False, "eod_pad_length": PLACES},
        mock_config={"seq_length": LENGTH},
        create_attention_mask=True,
        use_broadcast_data=False,
        epochs=EPOCHS,
        seed=SEED,
        global_batch_size=GLOBAL,
        max_segments=PLACES,
        gradient_scale=scale,
        balance_rows=balance,
    )
    return list(loader.create_dict_iterator(num_epochs=1, output_numpy=True))


def test_rows_come_in_the_order_on_record_with_the_weights_of_their_batch(packs: Path) -> None:
    rows = read_arrow_folder(packs).to_pylist()
    order = data_order(len(rows), EPOCHS, GLOBAL, SEED)
    given = load(packs)
    assert len(given) == order.steps * GLOBAL
    assert [row["input_ids"].tolist() for row in given] == [
        rows[index]["input_ids"] for index in order.rows
    ]
    for step in range(order.steps):
        batch = given[step * GLOBAL : (step + 1) * GLOBAL]
        sources = [rows[index] for index in order.rows[step * GLOBAL : (step + 1) * GLOBAL]]
        segments = sum(len(row["rewards"]) for row in sources)
        trained = sum(label != -100 for row in sources for label in row["labels"])
        weights = np.concatenate([row["segment_weights"] for row in batch])
        token_weights = np.concatenate([row["token_weights"] for row in batch])
        assert weights[weights > 0] == pytest.approx([1 / segments] * segments)
        assert token_weights[token_weights > 0] == pytest.approx([1 / trained] * trained)
        for row, source in zip(batch, sources, strict=True):
            expected = np.float32(source["rewards"])
            assert row["rewards"][: len(expected)].tolist() == expected.tolist()
    # A fractional reward is not cut to 0 (defect 7).
    assert any(0.25 in row["rewards"] for row in given)


def test_two_ranks_side_by_side_are_the_global_batches(packs: Path) -> None:
    alone = load(packs)
    ranks = [load(packs, rank, 2, scale=2.0) for rank in range(2)]
    together = [row for pair in zip(*ranks, strict=True) for row in pair]
    for ours, whole in zip(together, alone, strict=True):
        assert ours["input_ids"].tolist() == whole["input_ids"].tolist()
        # Averaged over the two, gradients weigh what they weigh in one process.
        assert ours["segment_weights"] == pytest.approx(2 * whole["segment_weights"])
        assert ours["token_weights"] == pytest.approx(2 * whole["token_weights"])


def test_balanced_ranks_cost_alike_and_read_the_same_steps(packs: Path) -> None:
    rows = read_arrow_folder(packs).to_pylist()
    ends = [row["actual_seq_len"] for row in rows]
    plain = data_order(len(rows), EPOCHS, GLOBAL, SEED)
    order = balanced_order(plain, ends, 2)
    assert order.rows.tolist() != plain.rows.tolist()
    ranks = [load(packs, rank, 2, balance=True) for rank in range(2)]
    for rank in range(2):
        expected = [rows[index]["input_ids"] for index in order.rows[rank::2]]
        assert [row["input_ids"].tolist() for row in ranks[rank]] == expected

    def slowest(found: Any) -> int:
        squares = [sum(np.diff([0, *row]) ** 2) for row in ends]
        costs = np.array(squares)[found.rows].reshape(-1, GLOBAL // 2, 2).sum(axis=1)
        return int(costs.max(axis=1).sum())

    assert slowest(order) < slowest(plain)
    # Weights are those of the whole step, which has the same rows in another order.
    weights = [row["segment_weights"].max() for row in load(packs)]
    assert [row["segment_weights"].max() for row in ranks[0]] == weights[::2]
