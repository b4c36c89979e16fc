"""Adds rewards to responses: grade/rewards.py as a MindFormers handler.

handler:
  - {type: RewardHandler, verdicts: verdicts.parquet}
  - type: RewardHandler                 # for other column names in the file and the data
    verdicts: scores.jsonl
    map_keys: {problem_id: question, sample_index: attempt, reward: score}
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pcl_reasoner.grade import rewards
from pcl_reasoner.handlers.common import checked_map, report


class RewardHandler:
    """Adds the columns ``reward``, ``pass_rate`` and ``advantage`` (float32) to responses.

    Args:
        verdicts: The grade stage's verdicts.parquet, or another Parquet or JSONL file of rewards.
        map_keys: Our name of a column -> its name in that file and in the data.
        unused: Other keywords, which MindFormers adds; they are ignored.

    Raises:
        InputError: The file lacks a column, or ``map_keys`` has an unknown key.
        StageError: A reward is missing or outside of [0, 1], or a response has two rewards.
    """

    def __init__(
        self, verdicts: str, map_keys: Mapping[str, str] | None = None, **unused: Any
    ) -> None:
        self.names = checked_map("RewardHandler", map_keys or {}, rewards.COLUMNS)
        self.verdicts = verdicts
        self.rewards = rewards.Rewards(rewards.read_rewards(Path(verdicts), self.names))

    def __call__(self, dataset: Any) -> Any:
        """Add rewards to a datasets.Dataset of responses.

        Raises:
            InputError: The data lacks the columns that identify a response.
            StageError: A response has no verdict.
        """
        columns = [self.names.get(name, name) for name in ("problem_id", "sample_index")]
        rewards.require_columns("RewardHandler: the data", dataset.column_names, columns)
        problems, indices = (dataset[name] for name in columns)
        keys = list(zip(map(str, problems), indices, strict=True))
        joined = self.rewards.join(keys, self.verdicts)
        report("RewardHandler", len(keys), len(keys), {})
        for name, values in joined.items():
            dataset = dataset.add_column(name, values)
        return dataset
