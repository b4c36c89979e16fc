"""SegmentPackingHandler: what the stage does, called as MindFormers calls it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from datasets import Dataset, load_from_disk
from pack_helpers import samples
from pcl_reasoner.handlers.packing import SegmentPackingHandler

from pcl_reasoner.pack.arrow_folder import write_arrow_folder
from pcl_reasoner.pack.stage import PackConfig, pack
from pcl_reasoner.pack.tokens import SCHEMA
from pcl_reasoner.stage import StageContext

TABLE = samples(np.random.default_rng(0).integers(2, 60, 100).tolist())


def test_agrees_with_the_stage_in_memory_and_on_disk(tmp_path: Path) -> None:
    for name in ("tokens", "rows"):
        (tmp_path / name).mkdir()
    write_arrow_folder(tmp_path / "tokens", SCHEMA, TABLE.to_batches(max_chunksize=9))
    (tmp_path / "tokens" / "meta.json").write_text(json.dumps({"pad_token_id": 7}))
    context = StageContext(name="x", kept_apart=tmp_path / "kept_apart.jsonl")
    config = PackConfig(seq_length=100, seed=5)
    pack(config, {"samples": tmp_path / "tokens"}, tmp_path / "rows", context)
    expected = load_from_disk(str(tmp_path / "rows"))
    loaded = load_from_disk(str(tmp_path / "tokens"))
    settings = {"seq_length": 100, "seed": 5, "pad_token_id": 7, "pack_strategy": "pack"}
    in_memory = SegmentPackingHandler(**settings)(loaded)
    on_disk = SegmentPackingHandler(**settings, output=str(tmp_path / "handler"))(loaded)
    assert in_memory.to_list() == expected.to_list()
    assert on_disk.to_list() == expected.to_list()
    assert in_memory.features == expected.features
    assert on_disk._fingerprint == expected._fingerprint


def test_a_shuffled_selection_is_packed_and_not_the_table_under_it() -> None:
    chosen = Dataset(TABLE).select([5, 3, 8])
    rows = SegmentPackingHandler(100, seed=0, pad_token_id=7, one_a_row=True)(chosen)
    assert sorted(rows["problem_ids"]) == [["p3"], ["p5"], ["p8"]]
