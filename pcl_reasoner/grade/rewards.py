"""Reads and checks rewards, computes pass rates and advantages, and adds them to responses.

A reward belongs to a response: ("9f0c…", 3) -> 1.0. A group is all responses to one problem; its
pass rate is the mean of their rewards. A missing reward is an error, never a 0.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pcl_reasoner.core.errors import InputError, StageError
from pcl_reasoner.core.schemas import Key
from pcl_reasoner.grade.config import Normalise, Overlong

COLUMNS = ("problem_id", "sample_index", "reward")
"""Columns that a file of verdicts must have."""


def checked_reward(reward: float | None, where: str) -> float:
    """Return a reward after checking that it is in [0, 1].

    Args:
        reward: The value read from the file.
        where: The name of the response, for the error.

    Raises:
        StageError: The reward is missing, not a number or out of range.
    """
    # For NaN the comparison is false, so NaN is rejected too.
    if reward is None or not 0.0 <= reward <= 1.0:
        raise StageError(
            f"{where}: the reward must be in [0, 1], got {reward}. A missing reward is not a 0: "
            "grade the response, or leave it out."
        )
    return reward


def read_rewards(file: Path, names: Mapping[str, str] | None = None) -> dict[Key, float]:
    """Read a file of verdicts as (problem_id, sample_index) -> reward.

    Args:
        file: The grade stage's verdicts.parquet, or any Parquet or JSONL file with COLUMNS.
        names: Name in COLUMNS -> the file's own column name, if it differs.

    Raises:
        InputError: The file lacks a column.
        StageError: A reward is missing or out of range, or a response has two verdicts.
    """
    table = _read_table(file)
    columns = [(names or {}).get(name, name) for name in COLUMNS]
    require_columns(str(file), table.column_names, columns)
    found: dict[Key, float] = {}
    for problem, index, reward in zip(*(table[name].to_pylist() for name in columns), strict=True):
        response = f"response {index} of problem {problem}"
        if (str(problem), index) in found:
            raise StageError(f"{file}: two verdicts on {response}.")
        found[str(problem), index] = checked_reward(reward, f"{file}: {response}")
    return found


def _read_table(file: Path) -> Any:
    """Read a Parquet or JSONL file as an Arrow table."""
    import pyarrow.json

    from pcl_reasoner.curate.parts import read_parquet, reading

    if file.suffix != ".jsonl":
        return read_parquet(file)
    with reading(file, "JSON Lines file"):
        return pyarrow.json.read_json(str(file))


def require_columns(where: str, have: list[str], need: Iterable[str]) -> None:
    """Raise InputError if columns are missing.

    Args:
        where: The name of the data, for the error.
        have: The columns that exist.
        need: The columns that are required.
    """
    missing = [name for name in need if name not in have]
    if missing:
        raise InputError(
            f"{where} has no column {', '.join(missing)}, only {', '.join(have)}. "
            "Name its columns with map_keys."
        )


def pass_rates(by_key: Mapping[Key, float]) -> dict[str, float]:
    """Return problem_id -> mean reward of its group."""
    groups = _groups(by_key)
    return {name: sum(by_key[key] for key in keys) / len(keys) for name, keys in groups.items()}


def _groups(by_key: Mapping[Key, float]) -> dict[str, list[Key]]:
    groups: dict[str, list[Key]] = {}
    for key in by_key:
        groups.setdefault(key[0], []).append(key)
    return groups


def advantages(by_key: Mapping[Key, float]) -> dict[Key, float]:
    """Return each response's advantage: (reward − group mean) / group standard deviation.

    Args:
        by_key: The result of read_rewards; a group is all responses to one problem.
    """
    found: dict[Key, float] = {}
    for keys in _groups(by_key).values():
        rewards = np.array([by_key[key] for key in keys], np.float64)
        centred, _ = group_advantages(rewards, np.zeros(len(keys), bool))
        found.update(zip(keys, centred.tolist(), strict=True))
    return found


def group_advantages(
    rewards: npt.NDArray[np.float64],
    overlong: npt.NDArray[np.bool_],
    rule: Overlong = "wrong",
    normalise: Normalise = "std",
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Return the advantages of one group's responses, and which of them a loss averages over.

        rewards 1 0 1 -, the last is overlong     mean       advantages (none)    averaged
        zero: its reward is 0                     1/2        1/2 -1/2 1/2    0    1 1 1 1
        masked: it is left out                    2/3        1/3 -2/3 1/3    0    1 1 1 0
        wrong: its reward is 0                    1/2        1/2 -1/2 1/2 -1/2    1 1 1 1

    The standard deviation is the population's (ddof = 0). If all rewards that are compared are
    equal, the advantages are 0.

    Args:
        rewards: [n], the rewards of the group's answered responses.
        overlong: [n], True for a response that reached its token limit.
        rule: What an overlong response counts.
        normalise: Whether advantages are divided by the standard deviation.

    Source: GRPO (arXiv 2402.03300); ``masked``: DAPO (2503.14476); ``none``: Dr. GRPO (2503.20783).
    verl divides by the sample's standard deviation (ddof = 1) + 1e-6.
    """
    values = np.where(overlong, 0.0, rewards)
    compared = ~overlong if rule == "masked" else np.ones(len(values), bool)
    averaged = compared
    if not compared.any():
        return np.zeros(len(values)), averaged
    group = values[compared]
    # Rounding can make the deviation of equal fractions slightly different from 0.
    spread = group.std() if group.min() < group.max() else np.inf
    if normalise == "none":
        spread = 1.0 if np.isfinite(spread) else np.inf
    found = np.where(compared, (values - group.mean()) / spread, 0.0)
    return (found if rule == "wrong" else np.where(overlong, 0.0, found)), averaged


class Rewards:
    """Rewards with their pass rates and advantages, to be joined to responses.

    Args:
        by_key: The result of read_rewards.
        rates: problem_id -> mean reward of its group; None to compute it from ``by_key``.
    """

    def __init__(
        self, by_key: Mapping[Key, float], rates: Mapping[str, float] | None = None
    ) -> None:
        self.by_key = by_key
        self.pass_rates = rates or pass_rates(by_key)
        self.advantages = advantages(by_key)

    def join(self, keys: list[Key], where: str) -> dict[str, npt.NDArray[np.float32]]:
        """Return the columns ``reward``, ``pass_rate`` and ``advantage`` of the given responses.

        Args:
            keys: [n] keys of responses.
            where: The source of the responses, for errors.

        Returns:
            Column name -> [n] float32.

        Raises:
            StageError: A response has no verdict.
        """
        missing = [f"{key[0]}/{key[1]}" for key in keys if key not in self.by_key]
        if missing:
            raise StageError(
                f"{where}: {len(missing)} of {len(keys)} responses have no verdict (first: "
                f"{', '.join(missing[:5])}). A missing reward is not a 0: grade these responses "
                "too."
            )
        return {
            "reward": np.array([self.by_key[key] for key in keys], np.float32),
            "pass_rate": np.array([self.pass_rates[problem] for problem, _ in keys], np.float32),
            "advantage": np.array([self.advantages[key] for key in keys], np.float32),
        }
