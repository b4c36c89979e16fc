"""Makes the rows of a rehearsal: the recipe's own packed rows, cut to size, or artificial ones.

    recipe's row     [1 2 3 4 5 6 | 7 8 9], 51 200 tokens, vocabulary 152 064
    its segments     [1 2 3 4 5 6] and [7 8 9], each cut to at most a quarter of a rehearsal's row
    rehearsal's row  the segments packed again; token t becomes t modulo the tiny vocabulary

Rewards, pass rates, advantages and old log-probs stay with their segments.
"""

from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pcl_reasoner.core.schemas import OLD_LOG_PROBS, PACKED_OLD_LOG_PROBS, SEGMENTS
from pcl_reasoner.pack.arrow_folder import read_arrow_folder, write_arrow_folder
from pcl_reasoner.pack.rows import plan_packing
from pcl_reasoner.pack.tokens import IGNORED
from pcl_reasoner.train.config import TrainConfig

_SCHEMA = pa.unify_schemas([SEGMENTS, OLD_LOG_PROBS])
_PARTS_OF_ROW = 4
"""A segment has at most this part of a row's tokens, so that a row has several segments."""
_SEGMENTS_PER_PROBLEM = 4
_ROWS_READ = 32

Segment = dict[str, Any]


def write_rows(folder: Path, config: TrainConfig, packs: Path | None, count: int) -> None:
    """Write packed rows of the rehearsal's size.

    Args:
        folder: A new Arrow folder.
        config: The scaled settings.
        packs: The recipe's packed rows; None for artificial rows.
        count: Number of rows.
    """
    assert config.model is not None
    limit, vocabulary = config.seq_length // _PARTS_OF_ROW, config.model.vocab_size
    segments = _segments_of(packs) if packs is not None else []
    segments = segments or _artificial(limit, config.seed)
    cut = [_cut(one, limit, vocabulary) for one in segments]
    chosen, tokens = [], 0
    for one in cycle(cut):
        chosen.append(one)
        tokens += one["length"]
        if tokens >= (count + 1) * config.seq_length:
            break
    table = pa.Table.from_pylist(chosen, schema=_schema(chosen))
    packing = plan_packing(table, config.seq_length, config.max_segments, config.seed, 0)
    folder.mkdir(parents=True)
    rows = (row for batch in packing.batches() for row in _single_rows(batch))
    write_arrow_folder(folder, packing.schema, islice(rows, count))


def _schema(segments: list[Segment]) -> pa.Schema:
    return _SCHEMA if segments[0].get("old_log_probs") is not None else SEGMENTS


def _single_rows(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    return (batch.slice(index, 1) for index in range(batch.num_rows))


def _segments_of(packs: Path) -> list[Segment]:
    """Return the segments of the first rows of a pack artifact."""
    table = read_arrow_folder(packs).slice(0, _ROWS_READ)
    has_old = PACKED_OLD_LOG_PROBS.names[0] in table.column_names
    unused = {"segment_ids", "old_log_probs_mean", "trained_segments", "trained_tokens"}
    table = table.drop_columns([name for name in table.column_names if name in unused])
    found = []
    for row in table.to_pylist():
        starts = [0, *row["actual_seq_len"]]
        for index, (start, end) in enumerate(zip(starts, row["actual_seq_len"], strict=False)):
            found.append(
                {
                    "problem_id": row["problem_ids"][index],
                    "sample_index": row["sample_indices"][index],
                    "input_ids": row["input_ids"][start:end],
                    "labels": row["labels"][start:end],
                    "reward": row["rewards"][index],
                    "pass_rate": row["pass_rates"][index],
                    "advantage": row["advantages"][index],
                    "old_log_probs": row["old_log_probs"][start:end] if has_old else None,
                }
            )
    return found


def _artificial(limit: int, seed: int) -> list[Segment]:
    """Return segments of random tokens that have a value in every column."""
    rng = np.random.default_rng(seed)
    found = []
    for problem in range(64):
        rewards = rng.integers(0, 2, _SEGMENTS_PER_PROBLEM).astype(float)
        spread = rewards.std() or 1.0
        for sample, reward in enumerate(rewards):
            length = int(rng.integers(limit // 4, limit))
            tokens = rng.integers(1, 1 << 20, length)
            labels = tokens.copy()
            labels[: length // 4] = IGNORED
            found.append(
                {
                    "problem_id": f"artificial-{problem}",
                    "sample_index": sample,
                    "input_ids": tokens.tolist(),
                    "labels": labels.tolist(),
                    "reward": reward,
                    "pass_rate": rewards.mean(),
                    "advantage": (reward - rewards.mean()) / spread,
                    # Near the values of a random model, so that clipped and unclipped tokens occur.
                    "old_log_probs": (-rng.normal(6.2, 0.3, length)).tolist(),
                }
            )
    return found


def _cut(segment: Segment, limit: int, vocabulary: int) -> Segment:
    """Keep at most ``limit`` tokens around the first trained one; fit them to the vocabulary."""
    labels = np.asarray(segment["labels"])
    trained = np.flatnonzero(labels != IGNORED)
    first = int(trained[0]) if len(trained) else 0
    start = max(0, min(first - limit // 4, len(labels) - limit))
    part = slice(start, start + limit)
    labels = labels[part].copy()
    labels[labels != IGNORED] %= vocabulary
    labels[0] = IGNORED
    found = {
        **segment,
        "input_ids": (np.asarray(segment["input_ids"][part]) % vocabulary).tolist(),
        "labels": labels.tolist(),
        "length": len(labels),
    }
    if segment["old_log_probs"] is not None:
        values = np.where(labels != IGNORED, segment["old_log_probs"][part], 0.0)
        found["old_log_probs"] = values.tolist()
        found["old_log_probs_mean"] = values.sum() / max(1, int((labels != IGNORED).sum()))
    return found
