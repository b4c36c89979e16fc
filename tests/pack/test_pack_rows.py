"""Packed rows hold exactly the samples, and train on nothing across a boundary."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pack_helpers import samples

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.pack import rows as module
from pcl_reasoner.pack.rows import list_at, plan_packing

PAD = 7


def pack(table: pa.Table, seq_length: int, **settings: Any) -> list[dict[str, Any]]:
    packing = plan_packing(table, seq_length, 128, 0, PAD, **settings)
    return pa.Table.from_batches(packing.batches(), packing.schema).to_pylist()


def test_a_row_by_hand() -> None:
    table = samples([3, 2]).set_column(3, "labels", pa.array([[-100, 2, 3], [1001, 1002]]))
    (row,) = pack(table, 8)
    # Longest first. The second sample's first label was trained on; nothing predicts it now.
    assert row["input_ids"] == [1, 2, 3, 1001, 1002, PAD, PAD, PAD]
    assert row["labels"] == [-100, 2, 3, -100, 1002, -100, -100, -100]
    assert row["segment_ids"] == [0, 0, 0, 1, 1, 2, 2, 2]
    assert row["actual_seq_len"] == [3, 5]
    assert row["rewards"] == [0.0, 0.25]
    assert row["problem_ids"] == ["p0", "p1"]
    assert row["sample_indices"] == [0, 1]
    assert row["pass_rates"] == [0.5, 0.5]
    assert row["advantages"] == [-1.0, 0.0]
    assert "old_log_probs_mean" not in row


def test_rows_reassemble_to_the_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BATCH_TOKENS", 300)
    lengths = np.random.default_rng(0).integers(2, 60, 200).tolist()
    table = pa.concat_tables([samples(lengths).slice(start, 7) for start in range(0, 200, 7)])
    found = []
    for row in pack(table, 100):
        ends = row["actual_seq_len"]
        assert len(row["input_ids"]) == len(row["labels"]) == len(row["segment_ids"]) == 100
        assert row["input_ids"][ends[-1] :] == [PAD] * (100 - ends[-1])
        assert set(row["labels"][ends[-1] :]) <= {-100}
        for number, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
            assert row["segment_ids"][start:end] == [number] * (end - start)
            found.append(
                {
                    "problem_id": row["problem_ids"][number],
                    "sample_index": row["sample_indices"][number],
                    "input_ids": row["input_ids"][start:end],
                    "labels": row["labels"][start:end],
                    "length": end - start,
                    "reward": row["rewards"][number],
                    "pass_rate": row["pass_rates"][number],
                    "advantage": row["advantages"][number],
                }
            )
    found.sort(key=lambda sample: int(sample["problem_id"][1:]))
    assert found == table.to_pylist()


def test_memory_is_that_of_a_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BATCH_TOKENS", 8_000)  # two rows

    def peak(number: int) -> int:
        packing = plan_packing(samples([2_000] * number), 4_000, 128, 0, PAD)
        tracemalloc.start()
        rows = sum(batch.num_rows for batch in packing.batches())
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert rows == number // 2
        return found

    # A row has 12 000 numbers of 4 bytes; 80 more rows would be 3.8 MB.
    assert peak(200) - peak(40) < 200_000


def test_no_label_is_predicted_from_another_segment() -> None:
    # Defect 5. All labels of these samples are trained on, the first ones too.
    table = samples([4, 5, 3, 6, 2], prompt=0)
    for row in pack(table, 10):
        inputs, targets = row["input_ids"][:-1], row["labels"][1:]  # the model's shift
        for place, target in enumerate(targets):
            if target != -100:
                assert row["segment_ids"][place] == row["segment_ids"][place + 1]
                assert target == inputs[place] + 1  # token j + 1 follows token j of one sample
        assert row["labels"][0] == -100


def test_over_length_is_an_error_a_drop_or_a_cut() -> None:
    # Defect 4: never silent.
    table = samples([3, 12, 4])
    with pytest.raises(StageError, match="1 of 3 samples are longer than a row of 10.*has 12"):
        plan_packing(table, 10, 128, 0, PAD)
    dropped = plan_packing(table, 10, 128, 0, PAD, over_length="drop")
    assert (dropped.dropped, dropped.truncated) == ({"over_length": 1}, 0)
    cut = plan_packing(table, 10, 128, 0, PAD, over_length="truncate")
    assert (cut.dropped, cut.truncated) == ({}, 1)
    rows = pack(table, 10, over_length="truncate")
    (whole,) = [row for row in rows if row["problem_ids"] == ["p1"]]
    assert whole["input_ids"] == list(range(1001, 1011))
    assert whole["actual_seq_len"] == [10]
    assert [row["problem_ids"] for row in pack(table, 10, over_length="drop")] == [["p2", "p0"]]


def test_a_cut_that_leaves_only_the_prompt_drops_the_sample() -> None:
    table = pa.concat_tables([samples([12], prompt=10), samples([3])])
    packing = plan_packing(table, 10, 128, 0, PAD, over_length="truncate")
    assert (packing.dropped, packing.truncated) == ({"over_length": 1}, 0)
    with pytest.raises(StageError, match="no sample is left"):
        plan_packing(table.slice(0, 1), 10, 128, 0, PAD, over_length="truncate")


def test_trained_tokens_are_those_of_the_rows() -> None:
    packing = plan_packing(samples([3, 12, 4], prompt=2), 10, 128, 0, PAD, over_length="truncate")
    list(packing.batches())
    found = packing.accounting(128)
    assert found["trained_tokens"] == 1 + 8 + 2
    assert (found["tokens"], found["segments"], found["truncated"]) == (17, 3, 1)


def with_old_log_probs(table: pa.Table) -> pa.Table:
    """Samples as the stage ``old_log_probs`` leaves them: token j of a sample has −(j + 1)."""
    values = [[-float(j + 1) for j in range(length)] for length in table["length"].to_pylist()]
    old = pa.array(values, pa.list_(pa.float32()))
    table = table.append_column("old_log_probs", old)
    return table.append_column("old_log_probs_mean", pa.array([-99.0] * len(values), pa.float32()))


def test_old_log_probs_stand_on_their_own_tokens() -> None:
    (row,) = pack(with_old_log_probs(samples([4, 3], prompt=2)), 9)
    assert row["old_log_probs"] == [0, 0, -3, -4, 0, 0, -3, 0, 0]
    # The mean is of the row's trained tokens, whatever the sample says.
    assert row["old_log_probs_mean"] == [-3.5, -3.0]


def test_a_cut_takes_old_log_probs_with_it() -> None:
    rows = pack(with_old_log_probs(samples([3, 12])), 6, over_length="truncate")
    (cut,) = [row for row in rows if row["problem_ids"] == ["p1"]]
    assert cut["old_log_probs"] == [0, -2, -3, -4, -5, -6]
    assert cut["old_log_probs_mean"] == [-4.0]


def test_samples_without_a_column_of_advantages_have_none() -> None:
    (row,) = pack(samples([3]).drop_columns("advantage"), 4)
    assert row["advantages"] == [None]


def test_one_a_row_has_no_neighbours() -> None:
    rows = pack(samples([3, 4]), 6, one_segment_per_row=True)
    assert sorted(row["actual_seq_len"] for row in rows) == [[3], [4]]


def test_lists_are_read_from_slices_and_chunks() -> None:
    column = pa.chunked_array(
        [
            pa.array([[1], [2, 3], [4]], pa.list_(pa.int32())).slice(1),
            pa.array([], pa.list_(pa.int32())),
            pa.array([[], [5, 6]], pa.list_(pa.int32())),
        ]
    )
    assert [list_at(column, index).tolist() for index in range(4)] == [[2, 3], [4], [], [5, 6]]
