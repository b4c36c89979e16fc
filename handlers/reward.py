"""Responses -> responses with their rewards, as a MindFormers handler over pcl_reasoner.grade."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pcl_reasoner.grade.select import pass_rates, rewards_of
from pcl_reasoner.grade.stage import read_rewards


class RewardHandler:
    """Adds the columns ``reward`` and ``pass_rate`` (float32), joined by response.

    Args:
        verdicts: The grade stage's verdicts.parquet.
        unused: The rest of MindFormers' keywords.
    """

    def __init__(self, verdicts: str, **unused: Any) -> None:
        self.verdicts = verdicts
        self.rewards = read_rewards(Path(verdicts))
        self.pass_rates = pass_rates(self.rewards)

    def __call__(self, dataset: Any) -> Any:
        """A datasets.Dataset with ``problem_id`` and ``sample_index`` -> the same with rewards."""
        import numpy as np

        problems = dataset["problem_id"]
        keys = list(zip(problems, dataset["sample_index"], strict=True))
        rewards = rewards_of(keys, self.rewards, self.verdicts)
        rates = np.array([self.pass_rates[problem] for problem, _ in keys], np.float32)
        return dataset.add_column("reward", rewards).add_column("pass_rate", rates)
