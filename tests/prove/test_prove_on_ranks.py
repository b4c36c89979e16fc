"""Our passes over several ranks, which are real processes on a CPU, are those of one process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from rehearsals import cluster_config, on_ranks, stage_inputs

from pcl_reasoner.core.schemas import SEGMENTS
from pcl_reasoner.prove.config import ProveConfig
from pcl_reasoner.prove.passes import Passes
from pcl_reasoner.prove.suspects import AS_TRAINED, groups
from pcl_reasoner.rehearse.scale import Scaled, scale
from pcl_reasoner.weights.conversion import shape_in, write_mindformers
from pcl_reasoner.weights.stream import read_files

SETTINGS = {"seq_length": 2048, "max_segments": 16, "precision": "float32"}


@pytest.fixture(scope="module", autouse=True)
def _ranks(ranks_can_run: None) -> None:
    """Ranks need g++ and the wheel that they were checked with."""


@pytest.mark.slow
def test_passes_of_four_ranks_are_those_of_one_process(tmp_path: Path) -> None:
    """2 x 2 ranks: the checkpoint as trained, and with the heads in another order."""
    scaled = scale(cluster_config(2, 2, 1, compressed_mask=True), None, 8).config
    inputs = stage_inputs(Scaled(scaled, []), tmp_path)
    file = tmp_path / "checkpoint.safetensors"
    write_mindformers(inputs["policy"], file)
    ids = np.random.default_rng(3).integers(3, 200, (2, 300)).tolist()
    rows = [
        {"problem_id": "p", "input_ids": one, "labels": [-100, *one[1:]], "length": len(one)}
        for one in ids
    ]
    segments = pa.Table.from_pylist(rows, schema=SEGMENTS)
    first = next(groups(shape_in(inputs["policy"]), {}, {}))
    suspects = [AS_TRAINED, next(one for one in first if one.name == "query heads in reverse")]
    found = []
    for layout in ({"rows": 2}, {"rows": 1, "data_parallel": 2, "model_parallel": 2}):
        config = ProveConfig(**SETTINGS, **layout)
        with on_ranks(scaled, tmp_path, 8497) as context:
            work = tmp_path / str(len(found))
            passes = Passes(
                config,
                read_files([file]),
                "hash",
                inputs["policy"],
                segments,
                work,
                tmp_path / "log.txt",
                context,
            )
            found.append([np.concatenate(values) for values in passes.values(suspects)])
    (trained, reversed_), ranks = found
    assert np.abs(trained - reversed_).max() > 1e-2
    np.testing.assert_allclose(ranks[0], trained, atol=5e-6)
    np.testing.assert_allclose(ranks[1], reversed_, atol=5e-6)
