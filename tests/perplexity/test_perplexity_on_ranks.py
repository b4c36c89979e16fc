"""Log-probs over several ranks, which are real processes on a CPU, are those of one process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from rehearsals import cluster_config, on_ranks, stage_inputs

from pcl_reasoner.core.schemas import SEGMENTS
from pcl_reasoner.pack.arrow_folder import read_arrow_folder
from pcl_reasoner.perplexity.old_log_probs import Evaluation, evaluate, forward_config
from pcl_reasoner.rehearse.scale import Scaled, scale

LAYOUT = {"data_parallel": 2, "model_parallel": 2, "sequence_parallel": True}


@pytest.fixture(scope="module", autouse=True)
def _ranks(ranks_can_run: None) -> None:
    """Ranks need g++ and the wheel that they were checked with."""


@pytest.mark.slow
def test_old_log_probs_of_four_ranks_are_those_of_one_process(tmp_path: Path) -> None:
    """2 x 2 ranks with sequence parallelism, rows of several segments, a compressed mask."""
    config = scale(cluster_config(2, 2, 1, compressed_mask=True), None, 8).config
    inputs = stage_inputs(Scaled(config, []), tmp_path)
    rows = read_arrow_folder(inputs["packs"]).to_pylist()
    samples = []
    for row in rows:
        starts = [0, *row["actual_seq_len"]]
        for start, end in zip(starts, row["actual_seq_len"], strict=False):
            part = {name: row[name][start:end] for name in ("input_ids", "labels")}
            samples.append({**part, "length": end - start})
    table = pa.Table.from_pylist(samples, schema=SEGMENTS)
    found = []
    for rows_per_rank, layout in ((2, {}), (1, LAYOUT)):
        settings = {"seq_length": 2048, "max_segments": 16, "precision": "float32", **layout}
        one = forward_config(rows=rows_per_rank, loss="sft", entropy=False, **settings)
        folder = tmp_path / f"{one.devices}"
        with on_ranks(one, tmp_path, 8495) as context:
            evaluation = Evaluation(one, inputs["policy"], table, 0)
            log = tmp_path / "log.txt"
            values = evaluate(evaluation, folder, log, context)
            found.append(np.concatenate([sample[0] for sample in values]))
    assert np.abs(found[0]).max() > 5
    np.testing.assert_allclose(found[1], found[0], atol=5e-6)
