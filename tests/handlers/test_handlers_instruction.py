"""InstructionHandler: what the stage does, called as MindFormers calls it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from datasets import Dataset, load_from_disk
from pack_helpers import write_model
from pcl_reasoner.handlers.instruction import InstructionHandler

from pcl_reasoner.pack.stage import TokenizeConfig, tokenize
from pcl_reasoner.pack.tokens import SCHEMA
from pcl_reasoner.stage import StageContext

ROWS = {
    "problem": [f"{number} + 1?" for number in range(150)],
    "cot": [f"<think>{number}</think>{number + 1}" for number in range(150)],
}


def test_agrees_with_the_stage(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model")
    (tmp_path / "data").mkdir()
    (tmp_path / "tokens").mkdir()
    pq.write_table(pa.table(ROWS), tmp_path / "data" / "clean.parquet")
    config = TokenizeConfig(source="rows", max_tokens=60, suffix=" Box it.", think_newline=True)
    context = StageContext(name="x", kept_apart=tmp_path / "kept_apart.jsonl")
    tokenize(
        config, {"responses": tmp_path / "data", "policy": model}, tmp_path / "tokens", context
    )
    handler = InstructionHandler(
        tokenizer=str(model),
        max_tokens=60,
        suffix=" Box it.",
        think_newline=True,
        seq_length=512,  # MindFormers passes more keywords than are used
    )
    found = handler(Dataset.from_dict(ROWS))
    assert found.to_list() == load_from_disk(str(tmp_path / "tokens")).to_list()
    assert len(found) == 150
    assert found.data.table.schema.remove_metadata().equals(SCHEMA)


def test_another_setting_is_never_answered_from_a_cache(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model")
    Dataset.from_dict(ROWS).save_to_disk(str(tmp_path / "set"))
    loaded = load_from_disk(str(tmp_path / "set"))
    plain = InstructionHandler(str(model), 100)(loaded)
    boxed = InstructionHandler(str(model), 100, suffix=" Box it.")(loaded)
    assert plain._fingerprint != boxed._fingerprint
    assert len(plain[0]["input_ids"]) < len(boxed[0]["input_ids"])


def test_counts_what_is_dropped(tmp_path: Path) -> None:
    handler = InstructionHandler(str(write_model(tmp_path / "model")), 100)
    turns = [{"from": "user", "value": "1 + 1?"}, {"from": "assistant", "value": "2"}]
    records = Dataset.from_list([{"conversations": turns}, {"conversations": turns[:1]}])
    assert len(handler(records)) == 1
    assert handler.tally.malformed == [(1, "malformed_conversation")]
