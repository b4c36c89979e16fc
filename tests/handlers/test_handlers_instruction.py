"""InstructionHandler: what the stage does, called as MindFormers calls it."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset, load_from_disk
from pack_helpers import CHATML, write_model

from pcl_reasoner.core.errors import InputError, StageError
from pcl_reasoner.core.schemas import SEGMENTS
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.handlers.instruction import InstructionHandler
from pcl_reasoner.pack.config import TokenizeConfig
from pcl_reasoner.pack.stage import tokenize
from pcl_reasoner.synthetic.base_model import write_model_folder

ROWS = {
    "problem": [f"{number} + 1?" for number in range(150)],
    "cot": [f"<think>{number}</think>{number + 1}" for number in range(150)],
}


def test_agrees_with_the_stage(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model")
    (tmp_path / "data").mkdir()
    (tmp_path / "tokens").mkdir()
    pq.write_table(pa.table(ROWS), tmp_path / "data" / "clean.parquet")
    config = TokenizeConfig(
        source="rows", max_segment_tokens=60, suffix=" Box it.", think_newline=True
    )
    context = StageContext(name="x", quarantined=tmp_path / "quarantined.jsonl")
    tokenize(
        config, {"responses": tmp_path / "data", "policy": model}, tmp_path / "tokens", context
    )
    handler = InstructionHandler(
        tokenizer=str(model),
        max_segment_tokens=60,
        suffix=" Box it.",
        think_newline=True,
        seq_length=512,  # MindFormers passes more keywords than are used
    )
    found = handler(Dataset.from_dict(ROWS))
    assert found.to_list() == load_from_disk(str(tmp_path / "tokens")).to_list()
    assert len(found) == 150
    assert found.data.table.schema.remove_metadata().equals(SEGMENTS)


def test_another_setting_is_never_answered_from_a_cache(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model")
    Dataset.from_dict(ROWS).save_to_disk(str(tmp_path / "set"))
    loaded = load_from_disk(str(tmp_path / "set"))
    plain = InstructionHandler(str(model), 100)(loaded)
    boxed = InstructionHandler(str(model), 100, suffix=" Box it.")(loaded)
    assert plain._fingerprint != boxed._fingerprint
    assert len(plain[0]["input_ids"]) < len(boxed[0]["input_ids"])


def test_counts_what_is_dropped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    handler = InstructionHandler(str(write_model(tmp_path / "model")), 100)
    turns = [{"from": "user", "value": "1 + 1?"}, {"from": "assistant", "value": "2"}]
    records = Dataset.from_list([{"conversations": turns}, {"conversations": turns[:1]}])
    with caplog.at_level(logging.WARNING):
        assert len(handler(records)) == 1
    assert handler.segmenter.malformed == [(1, "malformed_conversation")]
    # MindFormers says nothing of dropped rows, so the handler does.
    assert "InstructionHandler: 2 read, 1 kept; dropped: malformed_conversation 1" in caplog.text


def test_a_vocabulary_and_its_merges_are_the_folder(tmp_path: Path) -> None:
    write_model_folder(tmp_path, ["1 + 1 = 2 <think>"], 300, hidden=32, layers=1, seed=0)
    whole = json.loads((tmp_path / "tokenizer.json").read_text())
    parts = tmp_path / "parts"
    parts.mkdir()
    (parts / "vocab.json").write_text(json.dumps(whole["model"]["vocab"]))
    merges = [" ".join(pair) for pair in whole["model"]["merges"]]
    (parts / "merges.txt").write_text("\n".join(merges) + "\n")
    added = {token["id"]: token for token in whole["added_tokens"]}
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    config["added_tokens_decoder"] = added
    (parts / "tokenizer_config.json").write_text(json.dumps(config))
    files = {
        "type": "Qwen2Tokenizer",  # as V1's YAML names them
        "vocab_file": str(parts / "vocab.json"),
        "merges_file": str(parts / "merges.txt"),
    }
    from_folder = InstructionHandler(str(tmp_path), 200)(Dataset.from_dict(ROWS))
    from_files = InstructionHandler(files, 200)(Dataset.from_dict(ROWS))
    assert from_files.to_list() == from_folder.to_list()
    # Nothing but the two files and a template: the special tokens are Qwen's own.
    (parts / "tokenizer_config.json").unlink()
    (tmp_path / "chat.jinja").write_text(CHATML)
    bare = InstructionHandler(files, 200, template=str(tmp_path / "chat.jinja"))
    ids = bare(Dataset.from_dict(ROWS))[0]["input_ids"]
    start = whole["model"]["vocab"]["<|im_start|>"]
    assert (ids[0], ids.count(start)) == (start, 2)


def test_a_tokenizer_without_its_files_is_an_error() -> None:
    with pytest.raises(InputError, match="vocab_file and merges_file; got type"):
        InstructionHandler({"type": "Qwen2Tokenizer"}, 100)


def test_columns_of_other_names_and_their_rewards(tmp_path: Path) -> None:
    model = str(write_model(tmp_path / "model"))
    rows = {"q": ROWS["problem"], "output": ROWS["cot"], "score": [0.25] * 150}
    names = {"prompt": "q", "response": "output", "reward": "score"}
    found = InstructionHandler(model, 100, map_keys=names)(Dataset.from_dict(rows))
    plain = InstructionHandler(model, 100)(Dataset.from_dict(ROWS))
    assert found["input_ids"] == plain["input_ids"]
    assert set(found["reward"]) == {0.25}
    assert set(plain["reward"]) == {1.0}


def test_a_name_that_is_not_there_is_an_error_and_so_is_a_missing_reward(tmp_path: Path) -> None:
    model = str(write_model(tmp_path / "model"))
    with pytest.raises(InputError, match="map_keys has respons; .* Did you mean 'response'"):
        InstructionHandler(model, 100, map_keys={"respons": "output"})
    with pytest.raises(InputError, match="the data has no column output, only problem, cot"):
        InstructionHandler(model, 100, map_keys={"response": "output"})(Dataset.from_dict(ROWS))
    for reward in (None, float("nan"), -1.0):
        rows = {**ROWS, "reward": [*[1.0] * 149, reward]}
        with pytest.raises(StageError, match="row 149: the reward must be in .0, 1., got"):
            InstructionHandler(model, 100)(Dataset.from_dict(rows))
