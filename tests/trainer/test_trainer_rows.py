"""One packed row into the model's columns, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pcl_reasoner.losses.columns import OPTIONAL_COLUMNS
from pcl_reasoner.trainer.rows import model_row, trained_counts

ROW: dict[str, Any] = {
    # Segments a b c and d e, then two of padding; c and e are trained on.
    "input_ids": [11, 12, 13, 21, 22, 0, 0],
    "labels": [-100, -100, 13, -100, 22, -100, -100],
    "segment_ids": [0, 0, 0, 1, 1, 2, 2],
    "actual_seq_len": [3, 5],
    "rewards": [1.0, 0.25],
    "pass_rates": [0.5, 0.125],
    "advantages": [1.5, -0.25],
    # Unshifted, as the labels: of c and of e. What stands on other tokens is not taken.
    "old_log_probs": [-9.0, -9.0, -0.5, -9.0, -2.0, -9.0, -9.0],
    "old_log_probs_mean": [-0.5, -2.0],
}


def columns(row: dict[str, Any], compressed: bool, places: int = 4) -> dict[str, np.ndarray]:
    return model_row(row, places, 1 / 8, 1 / 32, compressed)


def test_a_row_by_hand() -> None:
    found = columns(ROW, compressed=False)
    expected = {
        "input_ids": [11, 12, 13, 21, 22, 0, 0],
        # b predicts c, d predicts e; c does not predict d.
        "labels": [-100, 13, -100, 22, -100, -100, -100],
        "position_ids": [0, 1, 2, 0, 1, 0, 1],
        "segment_ids": [0, 0, 0, 1, 1, 2, 2],
        "rewards": [1.0, 0.25, 0.0, 0.0],
        "segment_weights": [1 / 8, 1 / 8, 0.0, 0.0],
        "token_weights": [0, 1 / 32, 0, 1 / 32, 0, 0, 0],
        "pass_rates": [0.5, 0.125, 0.0, 0.0],
        "advantages": [1.5, -0.25, 0.0, 0.0],
        "old_log_probs": [0, -0.5, 0, -2.0, 0, 0, 0],
        "old_log_probs_mean": [-0.5, -2.0, 0.0, 0.0],
    }
    assert {name: found[name].tolist() for name in expected} == expected
    # 1 is forbidden: later tokens, and other segments.
    assert found["attention_mask"].tolist() == [
        [
            [0, 1, 1, 1, 1, 1, 1],
            [0, 0, 1, 1, 1, 1, 1],
            [0, 0, 0, 1, 1, 1, 1],
            [1, 1, 1, 0, 1, 1, 1],
            [1, 1, 1, 0, 0, 1, 1],
            [1, 1, 1, 1, 1, 0, 1],
            [1, 1, 1, 1, 1, 0, 0],
        ]
    ]
    dtypes = {name: array.dtype.name for name, array in found.items()}
    assert dtypes == {
        **dict.fromkeys(("input_ids", "labels", "position_ids", "segment_ids"), "int32"),
        **dict.fromkeys(("rewards", "segment_weights", "token_weights"), "float32"),
        **dict.fromkeys(OPTIONAL_COLUMNS, "float32"),
        "attention_mask": "uint8",
    }


def test_columns_that_the_data_lack_are_zeros() -> None:
    row = {key: value for key, value in ROW.items() if key not in OPTIONAL_COLUMNS}
    found = columns({**row, "advantages": [None, 0.5]}, compressed=False)
    assert found["advantages"].tolist() == [0.0, 0.5, 0.0, 0.0]
    for name in set(OPTIONAL_COLUMNS) - {"advantages"}:
        assert found[name].dtype == np.float32 and not found[name].any()
    assert found["old_log_probs"].shape == (7,)


def test_the_compressed_mask_is_the_ends_and_then_the_rows_length() -> None:
    found = columns(ROW, compressed=True)
    assert found["actual_seq_len"].tolist() == [3, 5, 7, 7]
    assert list(found)[-1] == "actual_seq_len"


def test_a_full_row_of_as_many_segments_as_there_are_places() -> None:
    row = {**ROW, "actual_seq_len": [3, 5], "rewards": [0.0, 1.0]}
    found = columns(row, compressed=True, places=2)
    assert found["segment_ids"].tolist() == [0, 0, 0, 1, 1, 2, 2]
    # The last end is the row's: from there MindFormers counts the next row of a batch.
    assert found["actual_seq_len"].tolist() == [3, 7]
    assert found["segment_weights"].tolist() == [1 / 8, 1 / 8]


def test_a_row_without_padding() -> None:
    row = {
        "input_ids": [1, 2, 3, 4],
        "labels": [-100, 2, -100, 4],
        "segment_ids": [0, 0, 1, 1],
        "actual_seq_len": [2, 4],
        "rewards": [1.0, 1.0],
    }
    found = columns(row, compressed=True)
    assert found["labels"].tolist() == [2, -100, 4, -100]
    assert found["position_ids"].tolist() == [0, 1, 0, 1]


def test_a_segment_without_a_trained_token_weighs_nothing() -> None:
    row = {**ROW, "labels": [-100, -100, -100, -100, 22, -100, -100]}
    assert columns(row, compressed=False)["segment_weights"].tolist() == [0, 1 / 8, 0, 0]
    assert trained_counts(row) == (1, 1)


@pytest.mark.parametrize("place", [3, 5])
def test_a_label_on_a_segments_first_token_is_refused(place: int) -> None:
    """Upstream's packing puts a pad token there, and it is trained on (defect 5)."""
    labels = list(ROW["labels"])
    labels[place] = 0
    with pytest.raises(ValueError, match="first label must be -100"):
        columns({**ROW, "labels": labels}, compressed=False)


def test_trained_counts_by_hand() -> None:
    assert trained_counts(ROW) == (2, 2)
    row = {**ROW, "labels": [11, 12, 13, -100, 22, -100, -100]}
    # The row's very first label is lost by the shift: two of segment 0, one of segment 1.
    assert trained_counts(row) == (2, 3)
    assert (columns(row, compressed=False)["token_weights"] > 0).sum() == 3
