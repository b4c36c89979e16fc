"""The loader of rounds: which micro-step reads which row, and how it waits for a round."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from train_helpers import LENGTH, PLACES, samples_of

from pcl_reasoner.pack.arrow_folder import read_arrow_folder, write_arrow_folder
from pcl_reasoner.pack.rows import plan_packing
from pcl_reasoner.rounds.files import Published, publish, round_folder, write_end

ROWS = 4
# 7 rows: segments of more than 16 tokens have a row of their own. Then 3 rows.
SIZES = ([20, 21, 22, 23, 24, 25, 26], [30, 28, 29])


def write_round(rounds: Path, number: int, sizes: list[int], segments: int) -> None:
    folder = round_folder(rounds, number)
    (folder / "rows").mkdir(parents=True)
    packing = plan_packing(samples_of(sizes, number), LENGTH, PLACES, number, 0)
    write_arrow_folder(folder / "rows", packing.schema, packing.batches())
    rows = len(packing.plan.rows)
    assert rows == len(sizes)
    publish(rounds, Published(number, -(-rows // ROWS), segments, rows))


@pytest.fixture
def rounds(tmp_path: Path) -> Path:
    """As in the loader's docstring: 7 rows of 9 segments' mean, then 3 of 5, and no end."""
    write_round(tmp_path, 0, SIZES[0], 9)
    write_round(tmp_path, 1, SIZES[1], 5)
    return tmp_path


def source(rounds: Path, scale: float = 1.0, compressed: bool = False) -> Any:
    import mindformers  # noqa: F401

    from pcl_reasoner.trainer.round_rows import RoundRows

    return RoundRows(rounds, ROWS, 20, PLACES, compressed, scale, LENGTH)


def row_of(rows: Any, index: int) -> dict[str, Any]:
    return dict(zip(rows.column_names, rows[index], strict=True))


def places(rounds: Path) -> Any:
    import mindformers  # noqa: F401

    from pcl_reasoner.trainer.round_rows import Places

    return Places(rounds)


def test_micro_steps_belong_to_rounds(rounds: Path) -> None:
    found = [places(rounds).known(index) for index in range(4)]
    kept = [one and (one.round.round, one.micro_step, one.is_last) for one in found]
    assert kept == [(0, 0, False), (0, 1, True), (1, 0, True), None]
    # Whichever is asked first.
    again = places(rounds)
    assert [again.known(index) == found[index] for index in (2, 0, 1, 3)] == [True] * 4


def test_rows_come_in_the_rounds_order_and_weigh_by_the_round(rounds: Path) -> None:
    rows = source(rounds)
    assert len(rows) == 80
    stored = [
        row
        for number in (0, 1)
        for row in read_arrow_folder(round_folder(rounds, number) / "rows").to_pylist()
    ]
    # Rows 7 and 11 fill up the last micro-steps of their rounds.
    places_of = [0, 1, 2, 3, 4, 5, 6, 8, 9, 10]
    for index, expected in zip(places_of, stored, strict=True):
        row = row_of(rows, index)
        assert row["input_ids"].tolist() == expected["input_ids"]
        weight = 1 / 9 if index < 8 else 1 / 5
        assert row["segment_weights"].tolist() == pytest.approx([weight, 0, 0, 0])
        assert row["advantages"][0] == pytest.approx(expected["advantages"][0])
        assert row["token_weights"].tolist() == [0.0] * LENGTH


def test_an_empty_row_trains_nothing(rounds: Path) -> None:
    rows = source(rounds)
    for index in (7, 11):
        row = row_of(rows, index)
        assert (row["labels"] == -100).all()
        for name in ("segment_weights", "token_weights", "advantages", "old_log_probs", "rewards"):
            assert not row[name].any(), name
        # As row 0: the same shapes and types, whatever is in it.
        first = row_of(rows, 0)
        assert {name: (one.shape, one.dtype) for name, one in row.items()} == {
            name: (one.shape, one.dtype) for name, one in first.items()
        }
    compressed = row_of(source(rounds, compressed=True), 7)
    assert compressed["actual_seq_len"].tolist() == [LENGTH] * PLACES


def test_the_scale_of_gradients_is_in_the_weights(rounds: Path) -> None:
    assert row_of(source(rounds, scale=2.0), 0)["segment_weights"][0] == pytest.approx(2 / 9)


def test_a_round_without_segments_has_a_weight_all_the_same(tmp_path: Path) -> None:
    round_folder(tmp_path, 0).mkdir()
    publish(tmp_path, Published(0, 1, 0, 0))
    row = row_of(source(tmp_path), 0)
    assert np.isfinite(row["segment_weights"]).all() and not row["segment_weights"].any()


def test_a_row_is_waited_for_until_its_round_is_published(rounds: Path) -> None:
    rows, began, found = source(rounds), threading.Event(), []

    def read() -> None:
        began.set()
        found.append(row_of(rows, 13))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    assert began.wait(10)
    time.sleep(0.1)
    assert reader.is_alive()
    # Rows without round.json are not a round yet.
    folder = round_folder(rounds, 2)
    (folder / "rows").mkdir(parents=True)
    packing = plan_packing(samples_of([19, 20], 2), LENGTH, PLACES, 2, 0)
    write_arrow_folder(folder / "rows", packing.schema, packing.batches())
    time.sleep(0.1)
    assert reader.is_alive() and not found
    publish(rounds, Published(2, 1, 2, 2))
    reader.join(10)
    expected = read_arrow_folder(folder / "rows").to_pylist()[1]
    assert found[0]["input_ids"].tolist() == expected["input_ids"]


def test_after_the_end_rows_are_empty(rounds: Path) -> None:
    rows = source(rounds)
    write_end(rounds, 2)
    for index in (12, 15, 79):
        row = row_of(rows, index)
        assert (row["labels"] == -100).all() and not row["segment_weights"].any()
    # The end hides no round that is published.
    assert row_of(rows, 8)["segment_weights"][0] == pytest.approx(1 / 5)


def test_a_round_that_is_published_with_the_end_is_read(
    rounds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last round and the end come between two looks of the loader."""
    from pcl_reasoner.trainer import round_rows

    waiting = places(rounds)

    def ends_now(folder: Path) -> bool:
        write_round(folder, 2, [19], 1)
        write_end(folder, 3)
        return True

    monkeypatch.setattr(round_rows, "has_ended", ends_now)
    found = waiting.wait(3)
    assert (found.round.round, found.micro_step) == (2, 0)


def test_two_ranks_read_every_other_row(rounds: Path) -> None:
    """By MindSpore's own iterator."""
    import mindformers  # noqa: F401

    from pcl_reasoner.trainer.round_rows import PclRoundLoader

    write_end(rounds, 2)
    alone = source(rounds)
    for rank in range(2):
        loader: Any = PclRoundLoader(
            rounds=str(rounds),
            rows=ROWS,
            max_micro_steps=3,
            max_segments=PLACES,
            seq_length=LENGTH,
            create_compressed_eod_mask=False,
            num_shards=2,
            shard_id=rank,
            use_broadcast_data=False,
        )
        found = list(loader.create_dict_iterator(num_epochs=1, output_numpy=True))
        assert len(found) == 6
        for place, row in enumerate(found):
            expected = row_of(alone, 2 * place + rank)
            assert row["input_ids"].tolist() == expected["input_ids"].tolist()
            assert row["segment_weights"].tolist() == expected["segment_weights"].tolist()
