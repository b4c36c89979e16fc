"""RewardHandler: joined by key, float32, a missing reward is an error."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset

from pcl_reasoner.core.errors import InputError, StageError
from pcl_reasoner.handlers.reward import RewardHandler


@pytest.fixture
def verdicts(tmp_path: Path) -> str:
    columns = {
        "problem_id": ["a", "a", "b"],
        "sample_index": pa.array([0, 1, 0], pa.int32()),
        "reward": pa.array([0.25, 1.0, 0.0], pa.float32()),
    }
    pq.write_table(pa.table(columns), tmp_path / "verdicts.parquet")
    return str(tmp_path / "verdicts.parquet")


def test_joined_by_key_and_not_by_place(verdicts: str) -> None:
    handler = RewardHandler(verdicts=verdicts, seq_length=512)
    found = handler(Dataset.from_dict({"problem_id": ["b", "a"], "sample_index": [0, 0]}))
    assert found["reward"] == [0.0, 0.25]
    assert found["pass_rate"] == [0.0, 0.625]
    assert found.features["reward"].dtype == "float32"
    assert found.features["pass_rate"].dtype == "float32"


def test_a_missing_reward_is_an_error(verdicts: str) -> None:
    with pytest.raises(StageError, match="1 of 2 responses have no verdict .first: a/7"):
        RewardHandler(verdicts)(
            Dataset.from_dict({"problem_id": ["a", "a"], "sample_index": [1, 7]})
        )


def test_a_file_and_data_with_names_of_their_own(tmp_path: Path) -> None:
    file = tmp_path / "scores.jsonl"
    lines = [{"question": "a", "attempt": n, "score": score} for n, score in enumerate((1.0, 0.5))]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    names = {"problem_id": "question", "sample_index": "attempt", "reward": "score"}
    found = RewardHandler(str(file), map_keys=names)(
        Dataset.from_dict({"question": ["a", "a"], "attempt": [1, 0]})
    )
    assert found["reward"] == [0.5, 1.0]
    assert found["advantage"] == [-1.0, 1.0]
    with pytest.raises(InputError, match="the data has no column attempt, only question"):
        RewardHandler(str(file), map_keys=names)(Dataset.from_dict({"question": ["a"]}))
    with pytest.raises(InputError, match="scores.jsonl has no column problem_id, sample_index"):
        RewardHandler(str(file))
    with pytest.raises(InputError, match="map_keys has rewards; expected one of"):
        RewardHandler(str(file), map_keys={"rewards": "score"})
