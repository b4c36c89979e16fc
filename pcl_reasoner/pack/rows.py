"""Builds rows of several segments from a plan and the segments' tokens.

    segments  [1, 2, 3] (labels −100, −100, 3)  and  [4, 5] (labels −100, 5), row of 8, pad id 0
    input_ids       [   1,    2, 3,    4, 5,    0,    0,    0]
    labels          [−100, −100, 3, −100, 5, −100, −100, −100]
    segment_ids     [   0,    0, 0,    1, 1,    2,    2,    2]
    actual_seq_len  [3, 5]        rewards [1.0, 0.0]
    trained_segments 2            trained_tokens 2

If the samples have ``old_log_probs`` (one float per token), the rows have these two columns, too:

    old_log_probs [0, 0, −0.5, 0, −2, 0, 0, 0]   old_log_probs_mean [−0.5, −2]

Labels and old log-probs stay unshifted: each is at the index of its own token. The first label of a
segment is always −100: after the shift it would be predicted from the last token of the previous
segment.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schemas import PACKED_OLD_LOG_PROBS, PACKED_ROWS
from pcl_reasoner.pack.config import OverLength
from pcl_reasoner.pack.packing import RowPlan, accounting, plan_rows
from pcl_reasoner.pack.tokens import IGNORED

_BATCH_TOKENS = 1 << 20
"""Row tokens held in memory before they are written, about 12 MB."""

_PER_SEGMENT = ("reward", "pass_rate", "advantage", "problem_id", "sample_index")
"""The samples' columns with one value per segment, in the order of PACKED_ROWS."""


def list_at(column: pa.ChunkedArray, index: int) -> npt.NDArray[Any]:
    """Return the list in one row of a list column as an array, [length], without copying.

    Args:
        column: Chunked array of list<int32> or list<float32>.
        index: The row.
    """
    found: npt.NDArray[Any] = column[index].values.to_numpy()
    return found


@dataclass
class Packing:
    """A table of samples, and the plan by which they are packed into rows.

    Args:
        samples: A table with tokenize's columns.
        kept: [n] table indices of the samples that are packed, ascending.
        plan: Rows of indices into ``kept``.
        pad_token_id: Token that fills the end of a row.
        dropped: Reason -> number of dropped samples.
        truncated: Number of truncated samples.
        trained_tokens: Number of trained labels, counted while rows are built.
    """

    samples: pa.Table
    kept: npt.NDArray[np.int64]
    plan: RowPlan
    pad_token_id: int
    dropped: dict[str, int]
    truncated: int
    trained_tokens: int = 0

    @property
    def has_old_log_probs(self) -> bool:
        """True when the samples have the old policy's log-probs."""
        return "old_log_probs" in self.samples.column_names

    @property
    def schema(self) -> pa.Schema:
        """Columns of the rows."""
        if not self.has_old_log_probs:
            return PACKED_ROWS
        return pa.unify_schemas([PACKED_ROWS, PACKED_OLD_LOG_PROBS])

    @cached_property
    def _segment_columns(self) -> list[pa.Array]:
        """The columns named in _PER_SEGMENT, of the kept samples; a missing column is all null."""
        nulls = pa.chunked_array([pa.nulls(len(self.samples), pa.float32())])
        present = self.samples.column_names
        columns = [self.samples[name] if name in present else nulls for name in _PER_SEGMENT]
        return [column.combine_chunks().take(self.kept) for column in columns]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows as Arrow record batches, a few rows at a time."""
        remaining, size = iter(self.plan.rows), max(1, _BATCH_TOKENS // self.plan.seq_length)
        while rows := list(islice(remaining, size)):
            yield self._batch(rows)

    def _batch(self, rows: list[npt.NDArray[np.int64]]) -> pa.RecordBatch:
        tokens, labels = self.samples["input_ids"], self.samples["labels"]
        shape = (len(rows), self.plan.seq_length)
        input_ids = np.full(shape, self.pad_token_id, np.int32)
        targets = np.full(shape, IGNORED, np.int32)
        sizes = [len(row) for row in rows]
        segment_ids = np.repeat(np.array(sizes, np.int32), shape[1]).reshape(shape)
        for row_index, number, start, end, source in self._spans(rows):
            input_ids[row_index, start:end] = list_at(tokens, source)[: end - start]
            # The first label stays −100: no token of this segment predicts it.
            targets[row_index, start + 1 : end] = list_at(labels, source)[1 : end - start]
            segment_ids[row_index, start:end] = number
        self.trained_tokens += int((targets != IGNORED).sum())
        segments = np.concatenate(rows)
        ends = np.concatenate([np.cumsum(self.plan.lengths[row]) for row in rows])
        arrays = [
            _matrix(input_ids),
            _matrix(targets),
            _lists(pa.array(ends.astype(np.int32)), sizes),
            _matrix(segment_ids),
            *(_lists(column.take(segments), sizes) for column in self._segment_columns),
            *_trained_counts(targets, segment_ids),
        ]
        if self.has_old_log_probs:
            arrays += self._old_log_prob_columns(rows, targets)
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _spans(self, rows: list[npt.NDArray[np.int64]]) -> Iterator[tuple[int, int, int, int, int]]:
        """Yield per segment: row, index in the row, start and end of its tokens, sample index."""
        for row_index, row in enumerate(rows):
            ends = np.cumsum(self.plan.lengths[row]).tolist()
            spans = zip(row.tolist(), [0, *ends], ends, strict=False)
            for number, (index, start, end) in enumerate(spans):
                yield row_index, number, start, end, int(self.kept[index])

    def _old_log_prob_columns(
        self, rows: list[npt.NDArray[np.int64]], targets: npt.NDArray[np.int32]
    ) -> list[pa.ListArray]:
        """Build the old policy's log-probs of the trained tokens, and their mean per segment."""
        log_probs, means = np.zeros(targets.shape, np.float32), []
        for row_index, _, start, end, source in self._spans(rows):
            trained = targets[row_index, start:end] != IGNORED
            values = list_at(self.samples["old_log_probs"], source)[: end - start]
            log_probs[row_index, start:end] = np.where(trained, values, np.float32(0))
            # The mean over the tokens left after truncation; the sample's mean is over all tokens.
            total = log_probs[row_index, start:end].sum(dtype=np.float64)
            means.append(total / max(1, int(trained.sum())))
        sizes = [len(row) for row in rows]
        return [_matrix(log_probs), _lists(pa.array(means, pa.float32()), sizes)]

    def accounting(self, max_segments: int) -> dict[str, Any]:
        """Return the content of accounting.json; call it after ``batches``, which counts tokens."""
        return {
            **accounting(self.plan, max_segments),
            "trained_tokens": self.trained_tokens,
            "dropped": self.dropped,
            "truncated": self.truncated,
        }


def _trained_counts(
    targets: npt.NDArray[np.int32], segment_ids: npt.NDArray[np.int32]
) -> tuple[pa.Array, pa.Array]:
    """Count the segments with a trained token, and the trained tokens, of each row.

    The trainer needs them for all rows before its first step, on every rank.
    """
    rows, tokens = np.nonzero(targets != IGNORED)
    has_token = np.zeros((len(targets), int(segment_ids.max(initial=0)) + 1), bool)
    has_token[rows, segment_ids[rows, tokens]] = True
    counts = np.bincount(rows, minlength=len(targets))
    return pa.array(has_token.sum(1), pa.int32()), pa.array(counts, pa.int32())


def plan_packing(
    samples: pa.Table,
    seq_length: int,
    max_segments: int,
    seed: int,
    pad_token_id: int,
    one_segment_per_row: bool = False,
    over_length: OverLength = "error",
) -> Packing:
    """Plan the packing of a table of samples from their lengths.

    Args:
        samples: A table with tokenize's columns.
        seq_length: Tokens per row.
        max_segments: Limit on the segments per row.
        seed: Seed of the rows' order.
        pad_token_id: Token that fills the end of a row.
        one_segment_per_row: True for one segment per row.
        over_length: What is done with samples longer than a row: error, drop or truncate.

    Raises:
        StageError: A sample is longer than a row (with ``error``), or no sample is left.
    """
    lengths = samples["length"].to_numpy().astype(np.int64)
    long = np.flatnonzero(lengths > seq_length)
    if len(long) and over_length == "error":
        raise StageError(
            f"{len(long)} of {len(lengths)} samples are longer than a row of {seq_length} tokens; "
            f"the longest has {lengths.max()}. Raise seq_length, lower tokenize's "
            "max_segment_tokens, or set over_length to drop or truncate."
        )
    cut = _cuttable(samples, long, seq_length) if over_length == "truncate" else long[:0]
    kept = np.setdiff1d(np.arange(len(lengths)), np.setdiff1d(long, cut))
    if not len(kept):
        raise StageError(
            f"no sample is left to pack: {len(lengths)} were read, {len(long)} are longer than a "
            f"row of {seq_length} tokens. Check the counts of the previous stages."
        )
    plan = plan_rows(
        np.minimum(lengths[kept], seq_length), seq_length, max_segments, seed, one_segment_per_row
    )
    dropped = {"over_length": len(lengths) - len(kept)} if len(kept) < len(lengths) else {}
    return Packing(samples, kept, plan, pad_token_id, dropped, len(cut))


def _cuttable(
    samples: pa.Table, long: npt.NDArray[np.int64], seq_length: int
) -> npt.NDArray[np.int64]:
    """Return the indices of long samples that keep a trained token after truncation."""
    labels = samples["labels"]
    left = [index for index in long if (list_at(labels, index)[1:seq_length] != IGNORED).any()]
    return np.asarray(left, np.int64)


def _matrix(values: npt.NDArray[Any]) -> pa.ListArray:
    """Convert [rows, seq_length] to one list per row."""
    return _lists(pa.array(values.reshape(-1)), [values.shape[1]] * values.shape[0])


def _lists(values: pa.Array, sizes: list[int]) -> pa.ListArray:
    offsets = np.cumsum([0, *sizes]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values)
