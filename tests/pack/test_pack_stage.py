"""The stages tokenize and pack, on real files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pack_helpers import write_model

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schemas import RESPONSES as SAMPLED
from pcl_reasoner.core.stage import Counts, StageContext
from pcl_reasoner.pack import stage as module
from pcl_reasoner.pack.arrow_folder import read_arrow_folder
from pcl_reasoner.pack.config import PackConfig, TokenizeConfig
from pcl_reasoner.pack.encoder import load_encoder
from pcl_reasoner.pack.stage import pack, tokenize

RESPONSES = [
    {"problem_id": "a", "sample_index": 0, "token_ids": [70, 71, 2], "reward": 1.0},
    {"problem_id": "a", "sample_index": 3, "token_ids": [72, 2], "reward": 0.25},
    {"problem_id": "b", "sample_index": 1, "token_ids": [], "reward": 0.0},
]
RL = TokenizeConfig(max_segment_tokens=100)


def context(path: Path) -> StageContext:
    return StageContext(name="x", quarantined=path / "quarantined.jsonl")


def write_selected(path: Path, rows: list[dict[str, Any]] = RESPONSES, **drop: Any) -> None:
    (path / "select").mkdir(parents=True)
    (path / "problems").mkdir()
    columns: dict[str, Any] = {
        "problem_id": [row["problem_id"] for row in rows],
        "sample_index": pa.array([row["sample_index"] for row in rows], pa.int32()),
        "response": ["x" if row["token_ids"] else "" for row in rows],
        "token_ids": pa.array([row["token_ids"] for row in rows], pa.list_(pa.int32())),
        "finish_reason": ["stop" if row["token_ids"] else "error" for row in rows],
        "reward": pa.array([row["reward"] for row in rows], pa.float32()),
        "pass_rate": pa.array([0.5] * len(rows), pa.float32()),
        "advantage": pa.array([2 * (row["reward"] or 0.0) for row in rows], pa.float32()),
    }
    table = pa.table(columns).drop_columns(list(drop))
    pq.write_table(table, path / "select" / "responses.parquet")
    problems = {"problem_id": ["a", "b"], "problem": ["1 + 1?", "2 + 2?"]}
    pq.write_table(pa.table(problems), path / "problems" / "clean.parquet")
    write_model(path / "model")


def run_tokenize(path: Path, config: TokenizeConfig = RL, name: str = "tokenize") -> Counts:
    (path / name).mkdir()
    inputs = {"responses": path / "select", "policy": path / "model"}
    if config.source == "responses":
        inputs["problems"] = path / "problems"
    return tokenize(config, inputs, path / name, context(path))


def test_responses_without_advantages_are_encoded_all_the_same(tmp_path: Path) -> None:
    """Only some losses need them; those say so when training starts."""
    write_selected(tmp_path, advantage=True)
    run_tokenize(tmp_path)
    assert read_arrow_folder(tmp_path / "tokenize")["advantage"].to_pylist() == [None, None]


def write_rows(path: Path, rows: dict[str, Any], file: str) -> None:
    target = path / "select" / file
    target.parent.mkdir(parents=True)
    pq.write_table(pa.table(rows), target)
    write_model(path / "model")


def test_tokenize_sampled_responses(tmp_path: Path) -> None:
    write_selected(tmp_path)
    counts = run_tokenize(tmp_path)
    table = read_arrow_folder(tmp_path / "tokenize")
    assert table["problem_id"].to_pylist() == ["a", "a"]
    assert table["sample_index"].to_pylist() == [0, 3]
    assert table["reward"].to_pylist() == [1.0, 0.25]  # a fraction stays one
    assert table["advantage"].to_pylist() == [2.0, 0.5]
    assert [ids[-3:] for ids in table["labels"].to_pylist()] == [[70, 71, 2], [-100, 72, 2]]
    assert table["length"].to_pylist() == [len(ids) for ids in table["input_ids"].to_pylist()]
    assert (counts.unit, counts.read, counts.kept) == ("segments", 3, 2)
    assert counts.dropped == {"empty_response": 1}
    meta = json.loads((tmp_path / "tokenize" / "meta.json").read_text())
    assert meta == {
        "pad_token_id": 0,
        "eos_token_id": 0,
        "end_of_turn_ids": [2],
        "vocab_size": 320,
    }


SAMPLES = TokenizeConfig(source="samples", max_segment_tokens=100)


def write_samples(path: Path, *files: list[dict[str, Any]]) -> dict[str, Path]:
    """Responses as ``sample`` writes them, in several files; return the stage's inputs."""
    write_selected(path)
    (path / "select" / "responses.parquet").unlink()
    (path / "select" / "responses").mkdir()
    for number, rows in enumerate(files):
        plain = {"response": "<think>8</think>8", "finish_reason": "stop", "n_tokens": 2}
        rest = {"seed": 0, "seconds": None, "server": "recorded"}
        table = pa.Table.from_pylist([{**plain, **rest, **row} for row in rows], SAMPLED)
        pq.write_table(table, path / "select" / "responses" / f"part-{number:05d}.parquet")
    (path / "tokenize").mkdir()
    names = {"responses": "select", "policy": "model", "problems": "problems"}
    return {role: path / name for role, name in names.items()}


def test_responses_without_rewards_are_all_trained_on_alike(tmp_path: Path) -> None:
    """Token ids are kept, a text without them is encoded; a cut one has no end of turn."""
    inputs = write_samples(
        tmp_path,
        [
            {"problem_id": "b", "sample_index": 4, "token_ids": [70, 71, 2]},
            {"problem_id": "a", "sample_index": 0, "token_ids": []},
        ],
        [
            {"problem_id": "a", "sample_index": 1, "token_ids": None, "finish_reason": "length"},
            {"problem_id": "a", "sample_index": 2, "token_ids": [], "response": ""},
        ],
    )
    counts = tokenize(SAMPLES, inputs, tmp_path / "tokenize", context(tmp_path))
    assert (counts.read, counts.kept, counts.dropped) == (4, 3, {"empty_response": 1})
    rows = read_arrow_folder(tmp_path / "tokenize").to_pylist()
    assert [(row["problem_id"], row["sample_index"]) for row in rows] == [
        *(("b", 4), ("a", 0), ("a", 1)),
    ]
    assert {(row["reward"], row["pass_rate"], row["advantage"]) for row in rows} == {(1, 1, None)}
    encoder = load_encoder(inputs["policy"])
    text = encoder.ids("<think>8</think>8")
    responses = [[70, 71, 2], [*text, 2], text]
    for row, response, problem in zip(rows, responses, ("2 + 2?", "1 + 1?", "1 + 1?"), strict=True):
        prompt = encoder.prompt_ids([{"role": "user", "content": problem}])
        assert row["input_ids"] == prompt + response
        assert row["labels"] == [-100] * len(prompt) + response


def test_the_responses_of_another_model_are_encoded_from_their_texts(tmp_path: Path) -> None:
    record = {"problem_id": "b", "sample_index": 4, "token_ids": [70, 71, 2]}
    inputs = write_samples(tmp_path, [record])
    config = SAMPLES.model_copy(update={"encode_text": True})
    tokenize(config, inputs, tmp_path / "tokenize", context(tmp_path))
    (row,) = read_arrow_folder(tmp_path / "tokenize").to_pylist()
    text = load_encoder(inputs["policy"]).ids("<think>8</think>8")
    assert [label for label in row["labels"] if label != -100] == [*text, 2]


def test_no_response_and_no_segment_are_errors(tmp_path: Path) -> None:
    """An empty file has a row group without rows, or none, which pyarrow cannot read."""
    inputs = write_samples(tmp_path, [])
    parts = tmp_path / "select" / "responses"
    for _ in range(2):
        with pytest.raises(StageError, match="select: no segment is left of 0 responses"):
            tokenize(SAMPLES, inputs, tmp_path / "tokenize", context(tmp_path))
        pq.ParquetWriter(parts / "part-00000.parquet", SAMPLED).close()
    rows = [{"problem_id": "a", "sample_index": 0, "token_ids": [2] * 200}]
    inputs = write_samples(tmp_path / "long", rows)
    with pytest.raises(StageError, match="of 1 responses .dropped: {'over_length': 1}"):
        tokenize(SAMPLES, inputs, tmp_path / "long" / "tokenize", context(tmp_path))


def test_the_same_bytes_whatever_the_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_selected(tmp_path)
    run_tokenize(tmp_path)
    run_tokenize(tmp_path, name="again")
    files = sorted(path.name for path in (tmp_path / "tokenize").iterdir())
    assert len(files) == 5
    for name in files:
        assert (tmp_path / "tokenize" / name).read_bytes() == (
            tmp_path / "again" / name
        ).read_bytes()
    monkeypatch.setattr(module, "_BATCH_ROWS", 1)
    run_tokenize(tmp_path, name="small")
    assert read_arrow_folder(tmp_path / "small").equals(read_arrow_folder(tmp_path / "tokenize"))


@pytest.mark.parametrize("reward", [None, 1.5, -1.0, float("nan")])
def test_a_reward_that_is_none_or_no_share_is_an_error(
    tmp_path: Path, reward: float | None
) -> None:
    write_selected(tmp_path, [RESPONSES[0], {**RESPONSES[1], "reward": reward}])
    with pytest.raises(StageError, match="response 3 of problem a: the reward must be"):
        run_tokenize(tmp_path)


def test_inputs_that_do_not_fit_are_errors(tmp_path: Path) -> None:
    write_selected(tmp_path / "x", reward=True)
    with pytest.raises(StageError, match="columns reward are missing"):
        run_tokenize(tmp_path / "x")
    write_selected(tmp_path / "y", [{**RESPONSES[0], "problem_id": "z"}])
    with pytest.raises(StageError, match="problem z has responses but is not in clean"):
        run_tokenize(tmp_path / "y")
    inputs = {"responses": tmp_path / "y" / "select", "policy": tmp_path / "y" / "model"}
    with pytest.raises(StageError, match="set source to rows"):
        tokenize(RL, inputs, tmp_path, context(tmp_path))
    with pytest.raises(StageError, match="no clean.parquet and no rows"):
        run_tokenize(tmp_path / "y", TokenizeConfig(source="rows", max_segment_tokens=9), "rows")


@pytest.mark.parametrize("file", ["clean.parquet", "rows/part-0.parquet"])
def test_tokenize_rows_of_a_data_set(tmp_path: Path, file: str) -> None:
    rows = {
        "row_id": ["r0", "r1", "r2"],
        "problem": ["1 + 1?", "1 + 1?", "2 + 2?"],
        "cot": ["<think>a</think>2", "2", None],
        "pass_rate": pa.array([0.5, None, 0.5], pa.float32()),
    }
    write_rows(tmp_path, rows, file)
    config = TokenizeConfig(
        source="rows", max_segment_tokens=100, think_newline=True, suffix=" Box it."
    )
    counts = run_tokenize(tmp_path, config)
    table = read_arrow_folder(tmp_path / "tokenize")
    assert table["reward"].to_pylist() == [1.0, 1.0]
    assert table["sample_index"].to_pylist() == [0, 1]
    assert len(set(table["problem_id"].to_pylist())) == 1
    assert counts.dropped == {"malformed_no_response": 1}
    (apart,) = (tmp_path / "quarantined.jsonl").read_text().splitlines()
    record = json.loads(apart)
    assert (record["file"], record["row"]) == (Path(file).name, 2)
    assert "2 + 2?" in record["raw"]
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tmp_path / "model" / "tokenizer.json"))
    text = tokenizer.decode(table["input_ids"].to_pylist()[0], skip_special_tokens=False)
    assert text.endswith(
        "1 + 1? Box it.<|im_end|>\n<|im_start|>assistant\n<think>\na</think>2<|im_end|>"
    )


def test_conversations_of_a_data_set(tmp_path: Path) -> None:
    turns = [[{"from": "user", "value": "1 + 1?"}, {"from": "assistant", "value": "2"}]]
    write_rows(tmp_path, {"conversations": turns}, "rows/part-0.parquet")
    counts = run_tokenize(tmp_path, TokenizeConfig(source="rows", max_segment_tokens=100))
    assert (counts.read, counts.kept) == (1, 1)


def test_over_length_is_counted(tmp_path: Path) -> None:
    write_selected(tmp_path)
    run_tokenize(tmp_path)
    longest = max(read_arrow_folder(tmp_path / "tokenize")["length"].to_pylist())
    drop = TokenizeConfig(max_segment_tokens=longest - 1)
    assert run_tokenize(tmp_path, drop, "drop").dropped == {"empty_response": 1, "over_length": 1}
    cut = TokenizeConfig(max_segment_tokens=longest - 1, over_length="truncate")
    assert run_tokenize(tmp_path, cut, "cut").info == {"truncated": 1}
    with pytest.raises(StageError, match="response 0 of problem a has"):
        strict = TokenizeConfig(max_segment_tokens=longest - 1, over_length="error")
        run_tokenize(tmp_path, strict, "strict")


def run_pack(path: Path, config: PackConfig, name: str = "pack") -> Counts:
    (path / name).mkdir()
    return pack(config, {"samples": path / "tokenize"}, path / name, context(path))


def test_pack(tmp_path: Path) -> None:
    write_selected(tmp_path)
    run_tokenize(tmp_path)
    total = sum(read_arrow_folder(tmp_path / "tokenize")["length"].to_pylist())
    counts = run_pack(tmp_path, PackConfig(seq_length=total + 2, seed=3))
    (row,) = read_arrow_folder(tmp_path / "pack").to_pylist()
    assert row["input_ids"][-2:] == [0, 0]  # the tokenizer's own pad token
    assert row["rewards"] == [1.0, 0.25]
    assert (counts.unit, counts.read, counts.kept, counts.dropped) == ("segments", 2, 2, {})
    accounting = json.loads((tmp_path / "pack" / "accounting.json").read_text())
    assert accounting["rows"] == 1
    assert accounting["tokens"] == total
    assert accounting["fill"] == total / (total + 2)
    assert accounting["trained_tokens"] == 5
    assert accounting["segments_per_row"] == {"2": 1}
    assert (accounting["dropped"], accounting["truncated"]) == ({}, 0)
    run_pack(tmp_path, PackConfig(seq_length=total + 2, seed=3), "again")
    for path in (tmp_path / "pack").iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes()


def test_pack_counts_what_it_drops(tmp_path: Path) -> None:
    write_selected(tmp_path)
    run_tokenize(tmp_path)
    longest = max(read_arrow_folder(tmp_path / "tokenize")["length"].to_pylist())
    counts = run_pack(
        tmp_path, PackConfig(seq_length=longest - 1, over_length="drop", pad_token_id=9)
    )
    assert (counts.read, counts.kept, counts.dropped) == (2, 1, {"over_length": 1})


def test_configs_refuse_what_cannot_be() -> None:
    for settings in ({"seq_length": 0}, {"seq_length": 8, "max_segments": 129}, {}):
        with pytest.raises(ValueError, match="Pack"):
            PackConfig.model_validate(settings)
