"""Responses -> responses with their rewards, as a MindFormers handler over grade/rewards.py.

handler:
  - {type: RewardHandler, verdicts: verdicts.parquet}
  - type: RewardHandler                 # a file and data with names of their own
    verdicts: scores.jsonl
    map_keys: {problem_id: question, sample_index: attempt, reward: score}
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pcl_reasoner.handlers.common import checked_map, report

from pcl_reasoner.grade import rewards


class RewardHandler:
    """Adds ``reward``, ``pass_rate`` and ``advantage`` (float32), joined by response.

    Args:
        verdicts: The grade stage's verdicts.parquet, or a Parquet or JSONL file like it.
        map_keys: Our key -> the column's name, in that file and in the data.
        unused: The rest of MindFormers' keywords.

    Raises:
        InputError: The file has not these columns, or ``map_keys`` names others.
        StageError: A reward is missing or outside of [0, 1], or a response has two.
    """

    def __init__(
        self, verdicts: str, map_keys: Mapping[str, str] | None = None, **unused: Any
    ) -> None:
        self.names = checked_map("RewardHandler", map_keys or {}, rewards.COLUMNS)
        self.verdicts = verdicts
        self.rewards = rewards.Rewards.of(rewards.read_rewards(Path(verdicts), self.names))

    def __call__(self, dataset: Any) -> Any:
        """A datasets.Dataset of responses -> the same with rewards.

        Raises:
            InputError: The data have not the columns that name a response.
            StageError: A response has no verdict.
        """
        own = [self.names.get(name, name) for name in ("problem_id", "sample_index")]
        rewards.require_columns("RewardHandler: the data", dataset.column_names, own)
        problems, indices = (dataset[name] for name in own)
        keys = list(zip(map(str, problems), indices, strict=True))
        joined = self.rewards.join(keys, self.verdicts)
        report("RewardHandler", len(keys), len(keys), {})
        for name, values in joined.items():
            dataset = dataset.add_column(name, values)
        return dataset
