"""Responses -> responses with their rewards, as a MindFormers handler over pcl_reasoner.grade.

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

from pcl_reasoner.handlers.report import report

from pcl_reasoner.errors import InputError
from pcl_reasoner.grade.select import Key, advantages, pass_rates, rewards_by_key, rewards_of

OUR_KEYS = ("problem_id", "sample_index", "reward")


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
        unknown = sorted(set(map_keys or {}) - set(OUR_KEYS))
        if unknown:
            raise InputError(
                f"RewardHandler: map_keys has {', '.join(unknown)}; expected some of "
                f"{', '.join(OUR_KEYS)}, each with the name that the data have."
            )
        self.names = {key: (map_keys or {}).get(key, key) for key in OUR_KEYS}
        self.verdicts = verdicts
        self.rewards = read_verdicts(Path(verdicts), self.names)
        self.pass_rates = pass_rates(self.rewards)
        self.advantages = advantages(self.rewards)

    def __call__(self, dataset: Any) -> Any:
        """A datasets.Dataset of responses -> the same with rewards.

        Raises:
            InputError: The data have not the columns that name a response.
            StageError: A response has no verdict.
        """
        import numpy as np

        problem, index = self.names["problem_id"], self.names["sample_index"]
        _require_columns("the data", dataset.column_names, (problem, index))
        keys = list(zip(map(str, dataset[problem]), dataset[index], strict=True))
        rewards = rewards_of(keys, self.rewards, self.verdicts)
        rates = np.array([self.pass_rates[name] for name, _ in keys], np.float32)
        gained = np.array([self.advantages[key] for key in keys], np.float32)
        report("RewardHandler", len(keys), len(keys), {})
        with_rates = dataset.add_column("reward", rewards).add_column("pass_rate", rates)
        return with_rates.add_column("advantage", gained)


def read_verdicts(file: Path, names: Mapping[str, str]) -> dict[Key, float]:
    """Read rewards by response.

    Args:
        file: Parquet, or JSON lines.
        names: Our key -> the file's column.

    Raises:
        InputError: The file has not these columns.
        StageError: As rewards_by_key.
    """
    import pyarrow as pa
    import pyarrow.json
    import pyarrow.parquet

    read = pa.parquet.read_table if file.suffix == ".parquet" else pa.json.read_json
    table = read(str(file))
    _require_columns(str(file), table.column_names, tuple(names.values()))
    problems, indices, rewards = (table[names[key]].to_pylist() for key in OUR_KEYS)
    keys = zip(map(str, problems), indices, strict=True)
    return rewards_by_key(keys, rewards, str(file))


def _require_columns(where: str, have: list[str], need: tuple[str, ...]) -> None:
    missing = [name for name in need if name not in have]
    if missing:
        raise InputError(
            f"RewardHandler: {where} has no {', '.join(missing)}, only {', '.join(have)}. "
            "Name its own columns with map_keys."
        )
