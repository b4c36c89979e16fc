"""The stage sample with responses that were recorded elsewhere: what is taken and what is not."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sample_helpers import PROBLEMS, context, problems_folder

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schemas import RESPONSES
from pcl_reasoner.core.stage import Counts
from pcl_reasoner.curate import problem_id
from pcl_reasoner.sample.stage import SampleConfig, sample

FIRST, SECOND, THIRD = sorted(map(problem_id, PROBLEMS))
OTHER = problem_id("not sampled")


def row(name: str | None, index: int | None, **changes: Any) -> dict[str, Any]:
    return {
        "problem_id": name,
        "sample_index": index,
        "response": f"<think>{name}</think>{index}",
        "token_ids": [5, 6],
        "finish_reason": "length",
        "n_tokens": 2,
        "seed": 9,
        "seconds": 0.25,
        "server": "http://teacher",
        **changes,
    }


ROWS = [
    [row(SECOND, 1), row(OTHER, 0), row(FIRST, 1)],
    [row(FIRST, 0), row(SECOND, 0), row(FIRST, 2)],
]
"""Of n = 2 responses to three problems, two are not recorded. One row is of another problem, and
one has the sample_index 2."""


def run(
    folder: Path, *files: list[dict[str, Any]], schema: pa.Schema | None = RESPONSES, n: int = 2
) -> tuple[Counts, Path]:
    """The stage on some files; the policy's folder has nothing in it."""
    recorded = folder / "recorded" / "responses"
    recorded.mkdir(parents=True)
    for number, rows in enumerate(files):
        pq.write_table(pa.Table.from_pylist(rows, schema), recorded / f"{number}.parquet")
    problems = problems_folder(folder / "problems")
    inputs = {"problems": problems, "policy": folder, "recorded": folder / "recorded"}
    output = folder / "out"
    config = SampleConfig(n=n, engine="server")
    return sample(config, inputs, output, context(output)), output


def test_the_responses_of_the_problems_are_taken_unchanged_and_in_order(tmp_path: Path) -> None:
    counts, output = run(tmp_path, *ROWS)
    table = pq.read_table(output / "responses" / "part-00000.parquet")
    assert table.schema.equals(RESPONSES)
    keys = [(FIRST, 0), (FIRST, 1), (SECOND, 0), (SECOND, 1)]
    assert table.to_pylist() == [row(*key) for key in keys]
    assert (counts.read, counts.kept, counts.dropped) == (6, 4, {"not_recorded": 2})
    figures = {"taken": 4, "not_recorded": 2, "of_other_problems": 1, "beyond_n": 1}
    assert counts.info == {"engine": "recorded", "problems": 3, **figures}
    described = json.loads((output / "sampling.json").read_text())
    assert described == {"engine": "recorded", "n": 2, "responses": figures}
    again = tmp_path / "again"
    run(again, ROWS[1], ROWS[0])
    part = Path("responses") / "part-00000.parquet"
    assert (again / "out" / part).read_bytes() == (output / part).read_bytes()


def test_other_types_of_the_same_numbers_are_read(tmp_path: Path) -> None:
    """Python's own types, as a teacher's answers are written by pandas or from JSON."""
    counts, output = run(tmp_path, ROWS[0], schema=None)
    assert counts.kept == 2
    assert pq.read_schema(output / "responses" / "part-00000.parquet").equals(RESPONSES)


def test_a_file_without_rows_is_read(tmp_path: Path) -> None:
    """With one row group, with none, and beside others."""
    recorded = tmp_path / "recorded" / "responses"
    recorded.parent.mkdir()
    pq.ParquetWriter(tmp_path / "none.parquet", RESPONSES).close()
    empty = (tmp_path / "none.parquet").read_bytes()
    assert pq.read_metadata(tmp_path / "none.parquet").num_row_groups == 0
    run(tmp_path, [], ROWS[0])
    (recorded / "none.parquet").write_bytes(empty)
    inputs = {"problems": tmp_path / "problems", "policy": tmp_path, "recorded": recorded.parent}
    output = tmp_path / "again"
    counts = sample(SampleConfig(n=2, engine="server"), inputs, output, context(output))
    assert counts.kept == 2


def test_only_a_few_responses_are_in_memory(tmp_path: Path) -> None:
    """1000 responses of 50 kB are 50 MB; a batch of 64, as rows and as lines, is 10 MB."""
    rows = [row(FIRST, index, response="x" * 50_000) for index in reversed(range(1000))]
    run(tmp_path, rows, n=1000)
    inputs = {"problems": tmp_path / "problems", "recorded": tmp_path / "recorded"}
    config = SampleConfig(n=1000, engine="server")
    output = tmp_path / "again"
    tracemalloc.start()
    sample(config, inputs, output, context(output))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 25_000_000
    assert not (output / "responses.partial.jsonl").exists()


@pytest.mark.parametrize(
    ("rows", "schema", "message"),
    [
        ([row(FIRST, 0), row(FIRST, 0)], RESPONSES, f"response 0 of problem {FIRST} occurs twice"),
        ([row(OTHER, 0)], RESPONSES, "none of its 1 responses is to one of the 3 problems"),
        ([row(FIRST, None)], RESPONSES, f"problem_id {FIRST} and the sample_index None, expected"),
        ([row(None, 0)], RESPONSES, "the problem_id None and the sample_index 0, expected an id"),
        ([row(FIRST, -1)], RESPONSES, "the sample_index -1, expected an id and a number from 0"),
        ([row(FIRST, 0, sample_index=0.5)], None, "expected the columns problem_id string, sample"),
        ([row(FIRST, 0, token_ids="5")], None, "0.parquet: .* expected the columns problem_id"),
        ([{"problem_id": FIRST, "response": "x"}], None, "no column sample_index, token_ids, fin"),
    ],
)
def test_what_is_no_recorded_response(
    tmp_path: Path, rows: list[dict[str, Any]], schema: pa.Schema | None, message: str
) -> None:
    with pytest.raises(StageError, match=message):
        run(tmp_path, rows, schema=schema)


def test_a_folder_without_files_and_a_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(StageError, match="no responses/\\*.parquet. The input `recorded` needs"):
        run(tmp_path)
    recorded = tmp_path / "recorded" / "responses"
    (recorded / "x.parquet").write_bytes(b"no Parquet file")
    inputs = {"problems": tmp_path / "problems", "policy": tmp_path, "recorded": recorded.parent}
    with pytest.raises(StageError, match="x.parquet: not a complete Parquet file"):
        sample(SampleConfig(n=2), inputs, tmp_path / "out", context(tmp_path / "out"))
