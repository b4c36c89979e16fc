"""Rows of a rehearsal: cut from real ones by hand, and artificial ones with every column."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
from rehearsals import cluster_config

from pcl_reasoner.core.schemas import PACKED_OLD_LOG_PROBS, PACKED_ROWS, SEGMENTS
from pcl_reasoner.pack.arrow_folder import read_arrow_folder, write_arrow_folder
from pcl_reasoner.pack.rows import plan_packing
from pcl_reasoner.rehearse.rows import write_rows
from pcl_reasoner.rehearse.scale import scale
from pcl_reasoner.rehearse.weights import write_policy
from pcl_reasoner.weights.model_config import read_shape

SCALED = scale(cluster_config(1, 2, 1), None, 8)
ROWS = 6


def test_artificial_rows_have_every_column(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows", SCALED.config, None, ROWS)
    table = read_arrow_folder(tmp_path / "rows")
    assert set(table.column_names) == {*PACKED_ROWS.names, *PACKED_OLD_LOG_PROBS.names}
    assert table.num_rows == ROWS
    for row in table.to_pylist():
        assert len(row["input_ids"]) == SCALED.config.seq_length
        assert max(row["input_ids"]) < SCALED.shape.vocab_size
        assert row["trained_segments"] == len(row["actual_seq_len"])
    assert np.mean([len(row["actual_seq_len"]) for row in table.to_pylist()]) > 3
    everything = [value for row in table.to_pylist() for value in row["rewards"]]
    assert {0.0, 1.0} == set(everything)


def test_a_recipes_rows_keep_their_rewards_and_get_a_small_vocabulary(tmp_path: Path) -> None:
    """Two segments of 5 tokens, one of 300: at most a quarter of a row of 256 is kept of each."""
    tokens = [[700, 701, 702, 703, 704], [5, 6, 7, 8, 9], list(range(1000, 1300))]
    labels = [[-100, -100, 702, 703, 704], [-100, 6, 7, 8, 9], [-100] * 100 + tokens[2][100:]]
    table = pa.table(
        {
            "problem_id": ["a", "a", "b"],
            "sample_index": pa.array([0, 1, 0], pa.int32()),
            "input_ids": pa.array(tokens, pa.list_(pa.int32())),
            "labels": pa.array(labels, pa.list_(pa.int32())),
            "length": pa.array([5, 5, 300], pa.int32()),
            "reward": pa.array([1.0, 0.0, 1.0], pa.float32()),
            "pass_rate": pa.array([0.5, 0.5, 1.0], pa.float32()),
            "advantage": pa.array([1.0, -1.0, 0.0], pa.float32()),
        },
        schema=SEGMENTS,
    )
    packing = plan_packing(table, 320, 8, 0, 0)
    (tmp_path / "packs").mkdir()
    write_arrow_folder(tmp_path / "packs", packing.schema, packing.batches())
    write_rows(tmp_path / "rows", SCALED.config, tmp_path / "packs", ROWS)
    found: dict[str, tuple[float, float, list[int], list[int]]] = {}
    for row in read_arrow_folder(tmp_path / "rows").to_pylist():
        starts = [0, *row["actual_seq_len"]]
        for index, end in enumerate(row["actual_seq_len"]):
            part = slice(starts[index], end)
            name = f"{row['problem_ids'][index]}{row['sample_indices'][index]}"
            values = row["rewards"][index], row["advantages"][index]
            found[name] = (*values, row["input_ids"][part], row["labels"][part])
    assert found["a0"] == (1, 1, [188, 189, 190, 191, 192], [-100, -100, 190, 191, 192])
    assert found["a1"] == (0, -1, tokens[1], labels[1])
    # 16 tokens before the first trained one (at 100), 48 from it on.
    long = np.array(tokens[2][84:148]) % 512
    assert found["b0"][2] == long.tolist()
    assert found["b0"][3] == [-100] * 16 + long[16:].tolist()


def test_the_policy_has_the_shape_and_no_constant_tensor(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    write_policy(tmp_path / "policy", SCALED.shape, seed=0)
    assert read_shape(tmp_path / "policy") == SCALED.shape
    weights = load_file(tmp_path / "policy" / "model.safetensors")
    assert all(values.std() > 0 for values in weights.values())
    assert json.loads((tmp_path / "policy" / "config.json").read_text())["model_type"] == "qwen2"
