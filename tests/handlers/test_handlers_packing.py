"""SegmentPackingHandler: what the stage does, called as MindFormers calls it."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, load_from_disk
from pack_helpers import samples

from pcl_reasoner.core.schemas import SEGMENTS
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.handlers.packing import SegmentPackingHandler
from pcl_reasoner.pack.arrow_folder import write_arrow_folder
from pcl_reasoner.pack.config import PackConfig
from pcl_reasoner.pack.stage import pack

TABLE = samples(np.random.default_rng(0).integers(2, 60, 100).tolist())


def test_agrees_with_the_stage_in_memory_and_on_disk(tmp_path: Path) -> None:
    for name in ("tokens", "rows"):
        (tmp_path / name).mkdir()
    write_arrow_folder(tmp_path / "tokens", SEGMENTS, TABLE.to_batches(max_chunksize=9))
    (tmp_path / "tokens" / "meta.json").write_text(json.dumps({"pad_token_id": 7}))
    context = StageContext(name="x", quarantined=tmp_path / "quarantined.jsonl")
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
    rows = SegmentPackingHandler(100, seed=0, pad_token_id=7, one_segment_per_row=True)(chosen)
    assert sorted(rows["problem_ids"]) == [["p3"], ["p5"], ["p8"]]


def test_labels_for_mindformers_own_loader_stand_one_place_to_the_left() -> None:
    settings = {"seq_length": 8, "seed": 0, "pad_token_id": 7}
    segments = Dataset(samples([3, 2]))
    plain = SegmentPackingHandler(**settings)(segments)[0]
    rows = SegmentPackingHandler(**settings, shift_labels=True)(segments)
    assert rows.column_names == ["input_ids", "labels", "actual_seq_len"]
    assert rows[0]["input_ids"] == plain["input_ids"]
    # Segments 1, 2, 3 and 1001, 1002; the first token of each is its prompt.
    longer, shorter = [2, 3, -100], [1002, -100]
    expected = {
        (3, 5): [*longer, *shorter, -100, -100, -100],
        (2, 5): [*shorter, *longer, -100, -100, -100],
    }
    assert rows[0]["labels"] == expected[tuple(rows[0]["actual_seq_len"])]


def test_mindformers_own_loader_gives_these_rows_with_positions_that_restart() -> None:
    """SFT with nothing of ours but the handlers: HFDataLoader finds them by name."""
    from pcl_reasoner.worker.entry import import_mindformers

    import_mindformers()
    from mindformers.dataset.dataloader.hf_dataloader import HFDataLoader

    settings = {"seq_length": 8, "seed": 0, "pad_token_id": 7, "shift_labels": True}
    with tempfile.TemporaryDirectory() as folder:
        Dataset(samples([3, 2])).save_to_disk(folder)
        loader: Any = HFDataLoader(
            python_multiprocessing=False,
            load_func="load_from_disk",
            dataset_path=folder,
            handler=[{"type": "SegmentPackingHandler", **settings}],
            create_attention_mask=True,
            use_broadcast_data=False,
        )
        [row] = loader.create_dict_iterator(num_epochs=1, output_numpy=True)
    first = 3 if row["input_ids"][2] == 3 else 2
    assert row["position_ids"].tolist() == [*range(first), *range(5 - first), 0, 1, 2]
    for place in range(4):
        target = row["labels"][place]
        assert target in (-100, row["input_ids"][place + 1])
    assert row["loss_mask"].sum() == 3
    # 1 is forbidden: the second segment does not see the first, nor a token a later one.
    assert row["attention_mask"][0][first].tolist() == [1] * first + [0] + [1] * (7 - first)
