"""One packed row of the pack artifact -> the columns that the model's ``construct`` takes.

pack:    input_ids   [a b c d e . .]     two segments: a b c and d e, then padding
         labels      [- b c - e - -]     unshifted: a label is at its own token
         actual_seq_len [3 5]
model:   labels      [b c - e - - -]     shifted: each position predicts the next token
         position_ids[0 1 2 0 1 0 1]     restart in each segment
         segment_ids [0 0 0 1 1 2 2]     padding is a segment of its own, never trained
         old_log_probs                shifted like labels: position i has the value of token i + 1
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcl_reasoner.losses.columns import (
    ADVANTAGES,
    OLD_LOG_PROBS,
    OLD_LOG_PROBS_MEAN,
    OPTIONAL_COLUMNS,
    PASS_RATES,
)

IGNORED_LABEL = -100
_READ = ("input_ids", "labels", "segment_ids", "actual_seq_len", "rewards")
_COUNTS = ("trained_segments", "trained_tokens")


def shift_labels(labels: NDArray[np.int32], segment_ids: NDArray[np.int32]) -> NDArray[np.int32]:
    """Move every label one position to the left, so that position i predicts token i + 1.

    Raises:
        ValueError: A segment's first token is labelled: it would be predicted from another segment.
    """
    first = np.flatnonzero(np.diff(segment_ids)) + 1
    if (labels[first] != IGNORED_LABEL).any():
        raise ValueError(
            "a segment's first label must be -100: no earlier token of the segment predicts it"
        )
    shifted = np.full_like(labels, IGNORED_LABEL)
    shifted[:-1] = labels[1:]
    return shifted


def position_ids(ends: NDArray[np.int32], length: int) -> NDArray[np.int32]:
    """Positions that restart at 0 in each segment and in the padding.

    Args:
        ends: Cumulative ends of the segments.
        length: Tokens per row, padding included.
    """
    starts = np.concatenate([[0], ends[ends < length]]).astype(np.int64)
    reset = np.zeros(length, np.int64)
    reset[starts] = starts
    return (np.arange(length) - np.maximum.accumulate(reset)).astype(np.int32)


def attention_mask(segment_ids: NDArray[np.int32]) -> NDArray[np.uint8]:
    """Dense mask [1, S, S], 1 where attention is forbidden: later tokens and other segments."""
    length = len(segment_ids)
    same = segment_ids[:, None] == segment_ids[None, :]
    allowed = np.tril(np.ones((length, length), bool)) & same
    return (~allowed)[None].astype(np.uint8)


def compressed_ends(ends: NDArray[np.int32], length: int, max_segments: int) -> NDArray[np.int32]:
    """``actual_seq_len`` for the compressed end-of-document mask, padded with the row's length.

    Args:
        ends: Cumulative ends of the segments.
        length: Tokens per row, padding included.
        max_segments: Length of the result (128 in PCL-Reasoner's YAML).
    """
    padded = np.full(max_segments, length, np.int32)
    # MindFormers offsets the next row of a batch by the last end, so that must be the row's length.
    # A max_segments-th segment thus includes the padding, which is later: its tokens do not see it.
    inner = ends[: max_segments - 1]
    padded[: len(inner)] = inner
    return padded


def pad_segments(
    values: Sequence[float | None] | NDArray[Any] | None, max_segments: int
) -> NDArray[np.float32]:
    """One number per segment -> [max_segments] float32, 0 where there is no number."""
    padded = np.zeros(max_segments, np.float32)
    # A missing number is None and becomes NaN.
    numbers = np.asarray([] if values is None else values, np.float32)
    padded[: len(numbers)] = np.nan_to_num(numbers, nan=0.0)
    return padded


def shift_log_probs(
    log_probs: Sequence[float] | NDArray[Any] | None, trained: NDArray[np.bool_]
) -> NDArray[np.float32]:
    """Move every log-prob to the position that predicts its token; 0 for untrained tokens.

    Args:
        log_probs: One per token, unshifted; None if the data have none.
        trained: [S], true at positions whose (shifted) label is trained on.
    """
    shifted = np.zeros(len(trained), np.float32)
    if log_probs is not None:
        shifted[:-1] = log_probs[1:]
    return np.where(trained, shifted, np.float32(0))


def model_row(
    row: dict[str, Any],
    max_segments: int,
    segment_weight: float,
    token_weight: float,
    compressed_mask: bool,
) -> dict[str, NDArray[Any]]:
    """Make the columns of one row, named as in ``column_names``.

    Args:
        row: A row of the pack artifact; a missing column of OPTIONAL_COLUMNS becomes 0.
        max_segments: G, segments that a row can hold.
        segment_weight: gradient_scale / number of trained segments in the row's global batch.
        token_weight: gradient_scale / number of trained tokens in the row's global batch.
        compressed_mask: True: ``actual_seq_len`` [G]; False: the dense mask [1, S, S].
    """
    segments = np.asarray(row["segment_ids"], np.int32)
    ends = np.asarray(row["actual_seq_len"], np.int32)
    labels = shift_labels(np.asarray(row["labels"], np.int32), segments)
    trained = labels != IGNORED_LABEL
    inside = trained & (segments < max_segments)
    has_token = np.bincount(segments[inside], minlength=max_segments)[:max_segments] > 0
    length = len(segments)
    columns = {
        "input_ids": np.asarray(row["input_ids"], np.int32),
        "labels": labels,
        "position_ids": position_ids(ends, length),
        "segment_ids": np.minimum(segments, max_segments).astype(np.int32),
        "rewards": pad_segments(row["rewards"], max_segments),
        "segment_weights": has_token.astype(np.float32) * np.float32(segment_weight),
        "token_weights": trained.astype(np.float32) * np.float32(token_weight),
        PASS_RATES: pad_segments(row.get(PASS_RATES), max_segments),
        ADVANTAGES: pad_segments(row.get(ADVANTAGES), max_segments),
        OLD_LOG_PROBS: shift_log_probs(row.get(OLD_LOG_PROBS), trained),
        OLD_LOG_PROBS_MEAN: pad_segments(row.get(OLD_LOG_PROBS_MEAN), max_segments),
    }
    if compressed_mask:
        return {**columns, "actual_seq_len": compressed_ends(ends, length, max_segments)}
    return {**columns, "attention_mask": attention_mask(segments)}


def as_arrays(dataset: Any) -> Any:
    """Return the packed rows (datasets) with the columns that model_row reads, as arrays."""
    read = {*_READ, *OPTIONAL_COLUMNS}
    columns = [name for name in dataset.column_names if name in read]
    # Without it, a row of 32 768 tokens becomes lists of Python integers, which takes 100 times as
    # long.
    return dataset.select_columns(columns).with_format("numpy")


def counts_of(dataset: Any) -> NDArray[np.int64]:
    """Return the numbers of trained segments and tokens of all packed rows, [rows, 2].

    The pack stage writes them. Rows from elsewhere are read and counted.

    Args:
        dataset: The packed rows (datasets).
    """
    if {*_COUNTS} <= {*dataset.column_names}:
        columns = dataset.select_columns(list(_COUNTS)).with_format("numpy")[:]
        return np.stack([columns[name] for name in _COUNTS], axis=1).astype(np.int64)
    table = dataset.select_columns(["labels", "segment_ids"]).with_format("numpy")
    return np.array([trained_counts(row) for row in table], np.int64).reshape(-1, 2)


def trained_counts(row: dict[str, Any]) -> tuple[int, int]:
    """Count a packed row's segments with a trained token, and its trained tokens."""
    labels = np.asarray(row["labels"], np.int32)
    segments = np.asarray(row["segment_ids"], np.int32)
    # The shift drops a row's first label; packing sets it to -100 anyway.
    trained = labels[1:] != IGNORED_LABEL
    return len(np.unique(segments[1:][trained])), int(trained.sum())
