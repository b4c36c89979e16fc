"""The stage on real Parquet files: what is kept, counted, quarantined and measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schemas import RESPONSES
from pcl_reasoner.core.stage import Counts, StageContext
from pcl_reasoner.tidy.config import TidyConfig
from pcl_reasoner.tidy.stage import tidy

SCORED = pa.schema([*RESPONSES, ("perplexity", pa.float32()), ("trained_tokens", pa.int32())])
GOOD = "<think>2 + 3 = 5</think><answer>\\boxed{5}</answer>"
CLEAN = list(range(50))
PHRASE = list(range(100, 125))


def row(name: str, index: int = 0, **changes: Any) -> dict[str, Any]:
    values = {
        "problem_id": name,
        "sample_index": index,
        "response": GOOD,
        "token_ids": CLEAN,
        "finish_reason": "stop",
        "seed": 1,
        "seconds": 0.5,
        "server": "local",
        "perplexity": 2.0,
        **changes,
    }
    ids = values["token_ids"] or []
    return {"n_tokens": len(ids), "trained_tokens": len(ids), **values}


def write(folder: Path, *files: list[dict[str, Any]], schema: pa.Schema = SCORED) -> Path:
    (folder / "responses").mkdir(parents=True)
    for number, rows in enumerate(files):
        table = pa.Table.from_pylist(rows, schema=schema)
        pq.write_table(table, folder / "responses" / f"part-{number:05d}.parquet")
    return folder


def run(folder: Path, output: Path, **settings: Any) -> tuple[Counts, StageContext]:
    output.mkdir()
    context = StageContext("tidy", output / "quarantined.jsonl")
    return tidy(TidyConfig(**settings), {"responses": folder}, output, context), context


def names(output: Path, file: str = "responses/part-00000.parquet") -> list[str]:
    return pq.read_table(output / file)["problem_id"].to_pylist()  # type: ignore[no-any-return]


def quarantined(output: Path) -> list[dict[str, Any]]:
    lines = (output / "quarantined.jsonl").read_text().splitlines()
    return [{**line, "raw": json.loads(line["raw"])} for line in map(json.loads, lines)]


FIRST = [
    row("good"),
    row("at the limit", perplexity=20.0),
    row("perplexing", perplexity=20.1),
    row("not a number", perplexity=float("nan")),
    row("four times", token_ids=[1, *PHRASE * 4, 2]),
    row("three times", token_ids=[1, *PHRASE * 3, 2]),
]
SECOND = [
    row("cut off", finish_reason="length"),
    row("failed", response="", token_ids=[], finish_reason="error", perplexity=None),
    row("no answer", response="<think>2 + 3 = 5</think>"),
    row("all at once", perplexity=900.0, token_ids=[7] * 90, finish_reason="length"),
    row("good too"),
]


def test_every_drop_has_one_reason_and_the_rest_is_kept_as_it_was(tmp_path: Path) -> None:
    source = write(tmp_path / "in", FIRST, SECOND)
    counts, context = run(source, tmp_path / "out")
    assert names(tmp_path / "out") == ["good", "at the limit", "three times"]
    assert names(tmp_path / "out", "responses/part-00001.parquet") == ["good too"]
    assert (counts.unit, counts.read, counts.kept) == ("responses", 11, 4)
    assert counts.dropped == {
        "high_perplexity": 3,
        "repeated_phrase": 1,
        "incomplete_structure": 3,
    }
    # Each filter alone: one response fails all three.
    assert counts.info["failed"] == {
        "high_perplexity": 3,
        "repeated_phrase": 2,
        "incomplete_structure": 4,
    }
    assert counts.info["structure"] == {"missing_tag": 1, "no_tokens": 1, "not_stopped": 2}
    before = pq.read_table(source / "responses" / "part-00000.parquet").to_pylist()
    after = pq.read_table(tmp_path / "out" / "responses" / "part-00000.parquet")
    assert after.schema.equals(SCORED)
    assert after.to_pylist() == [before[0], before[1], before[5]]
    assert context.warnings == []


def test_dropped_responses_are_quarantined_with_their_place_and_reason(tmp_path: Path) -> None:
    run(write(tmp_path / "in", FIRST, SECOND), tmp_path / "out")
    first, second = "responses/part-00000.parquet", "responses/part-00001.parquet"
    lines = quarantined(tmp_path / "out")
    assert [(line["file"], line["row"], line["reason"]) for line in lines] == [
        (first, 2, "high_perplexity"),
        (first, 3, "high_perplexity"),
        (first, 4, "repeated_phrase"),
        (second, 0, "incomplete_structure"),
        (second, 1, "incomplete_structure"),
        (second, 2, "incomplete_structure"),
        (second, 3, "high_perplexity"),
    ]
    assert lines[5]["raw"] == {
        "problem_id": "no answer",
        "sample_index": 0,
        "perplexity": 2.0,
        "structure": "missing_tag",
        "response": "<think>2 + 3 = 5</think>",
    }


def test_histograms_are_of_all_responses_that_were_read(tmp_path: Path) -> None:
    run(write(tmp_path / "in", FIRST, SECOND), tmp_path / "out", max_perplexity=30.0)
    found = json.loads((tmp_path / "out" / "histograms.json").read_text())
    assert {name: one["limit"] for name, one in found.items()} == {
        "perplexity": 30.0,
        "repeats": 4,
        "tokens": None,
    }
    assert {name: one["missing"] for name, one in found.items()} == {
        "perplexity": 2,  # null and NaN
        "repeats": 0,
        "tokens": 0,
    }
    repeats = dict(zip(found["repeats"]["edges"], found["repeats"]["counts"], strict=False))
    # 90 equal tokens are four phrases of 20 and a half.
    assert (repeats[1.0], repeats[3.0], repeats[4.0]) == (8, 1, 2)
    tokens = dict(zip(found["tokens"]["edges"], found["tokens"]["counts"], strict=False))
    assert tokens[0.0] == 8  # seven of 50 and one of 0
    assert sum(found["tokens"]["counts"]) == 11
    assert found["tokens"]["quantiles"]["1.0"] == 102
    assert sum(found["perplexity"]["counts"]) == 9


def test_other_repeats_and_none(tmp_path: Path) -> None:
    often = [token for number in range(21) for token in [*range(20), 1000 + number]]
    rows = [row("21 times", token_ids=often), row("20 times", token_ids=often[:-21]), FIRST[4]]
    source = write(tmp_path / "in", rows)
    counts, _ = run(source, tmp_path / "count", repeat="count")
    assert names(tmp_path / "count") == ["20 times", "four times"]
    assert counts.dropped == {"repeated_phrase": 1}
    histograms = json.loads((tmp_path / "count" / "histograms.json").read_text())
    assert histograms["repeats"]["limit"] == 20
    assert histograms["repeats"]["quantiles"]["1.0"] == 21
    with pytest.raises(StageError, match="no response is left of 3"):
        run(source, tmp_path / "strict", repeat="count", max_occurrences=3)
    run(source, tmp_path / "none", repeat="none")
    assert names(tmp_path / "none") == ["21 times", "20 times", "four times"]
    run(source, tmp_path / "five", times=5)
    assert names(tmp_path / "five") == ["21 times", "20 times", "four times"]
    run(source, tmp_path / "long", min_tokens=26, times=4)  # 25 counts as 50: twice
    assert names(tmp_path / "long") == ["21 times", "20 times", "four times"]


def test_models_without_answer_tags(tmp_path: Path) -> None:
    rows = [row("tags"), row("text", response="<think>a</think>5")]
    run(write(tmp_path / "in", rows), tmp_path / "out", tags="think_only")
    assert names(tmp_path / "out") == ["tags", "text"]


def test_many_batches_of_a_stage_that_writes_one_file(tmp_path: Path) -> None:
    """Rows of selected responses, with further columns; every hundredth is cut off."""
    schema = pa.schema([*SCORED, ("reward", pa.float32())])
    rows = [
        row(f"p{number}", reward=0.5, finish_reason="length" if number % 100 == 99 else "stop")
        for number in range(600)
    ]
    (tmp_path / "in").mkdir()
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), tmp_path / "in" / "responses.parquet")
    counts, _ = run(tmp_path / "in", tmp_path / "out")
    assert (counts.read, counts.kept) == (600, 594)
    table = pq.read_table(tmp_path / "out" / "responses.parquet")
    assert table.schema.equals(schema)
    assert table["problem_id"].to_pylist() == [f"p{n}" for n in range(600) if n % 100 != 99]
    assert [line["row"] for line in quarantined(tmp_path / "out")] == [99, 199, 299, 399, 499, 599]


def test_without_a_perplexity_the_threshold_must_be_left_out(tmp_path: Path) -> None:
    rows = [row("good"), row("empty", token_ids=None, response=None)]
    source = write(tmp_path / "in", rows, schema=RESPONSES)
    with pytest.raises(StageError, match="no column perplexity. Run the stage `perplexity` before"):
        run(source, tmp_path / "out")
    counts, _ = run(source, tmp_path / "without", max_perplexity=None)
    assert names(tmp_path / "without") == ["good"]
    assert counts.info["structure"] == {"no_tokens": 1}
    histograms = json.loads((tmp_path / "without" / "histograms.json").read_text())
    assert (histograms["perplexity"]["missing"], histograms["perplexity"]["limit"]) == (2, None)


def test_inputs_that_are_no_responses_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(StageError, match="no responses/\\*.parquet and no responses.parquet"):
        run(tmp_path / "empty", tmp_path / "out")
    mixed = write(tmp_path / "mixed", FIRST)
    pq.write_table(
        pa.Table.from_pylist(FIRST, schema=RESPONSES), mixed / "responses" / "part-00001.parquet"
    )
    with pytest.raises(StageError, match="part-00001.parquet: its columns differ"):
        run(mixed, tmp_path / "out2")


def test_no_response_left_says_what_was_dropped_and_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(StageError) as caught:
        run(write(tmp_path / "in", SECOND[:1], FIRST[2:3]), tmp_path / "out")
    said = str(caught.value)
    dropped = "{'incomplete_structure': 1, 'high_perplexity': 1}"
    assert said.startswith(f"no response is left of 2 (dropped: {dropped}; structure: ")
    assert (
        f"{tmp_path / 'out'}/histograms.json shows what was measured: raise max_perplexity" in said
    )
    assert (tmp_path / "out" / "histograms.json").exists()
    assert len(quarantined(tmp_path / "out")) == 2
    with pytest.raises(StageError, match="no responses in 1 files"):
        run(write(tmp_path / "none", []), tmp_path / "out2")


def test_a_file_of_which_nothing_is_left_is_read_again(tmp_path: Path) -> None:
    """It has no row groups, which pyarrow cannot read."""
    source = write(tmp_path / "in", SECOND[:1], FIRST[:1])
    run(source, tmp_path / "once")
    assert names(tmp_path / "once") == []
    counts, _ = run(tmp_path / "once", tmp_path / "twice")
    assert (counts.read, counts.kept) == (1, 1)
    assert names(tmp_path / "twice", "responses/part-00001.parquet") == ["good"]
