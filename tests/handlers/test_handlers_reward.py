"""RewardHandler: joined by key, float32, a missing reward is an error."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset
from pcl_reasoner.handlers.reward import RewardHandler

from pcl_reasoner.errors import StageError


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
