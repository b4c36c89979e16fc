"""Read rewards per response, check them, compute group figures and join both to responses.

A verdict: ("9f0c…", 3) -> reward 1.0. A group is all responses to one problem; its pass rate is
the mean of their rewards. A missing reward is an error, never a 0.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pcl_reasoner.core.errors import InputError, StageError
from pcl_reasoner.core.schemas import Key

COLUMNS = ("problem_id", "sample_index", "reward")
"""Columns that a file of verdicts must have."""


def checked_reward(reward: float | None, where: str) -> float:
    """Return a reward after checking that it is in [0, 1].

    Args:
        reward: The value read from the file.
        where: The reward's response, for the error.

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
    """Read a file of verdicts as response -> reward.

    Args:
        file: The grade stage's verdicts.parquet, or another Parquet or JSONL file with these
            columns.
        names: Maps a name in COLUMNS to the file's own column name, where it differs.

    Raises:
        InputError: The file lacks a column.
        StageError: A reward is missing or out of range, or a response has two verdicts.
    """
    import pyarrow as pa
    import pyarrow.json
    import pyarrow.parquet

    read = pa.json.read_json if file.suffix == ".jsonl" else pa.parquet.read_table
    table = read(str(file))
    columns = [(names or {}).get(name, name) for name in COLUMNS]
    require_columns(str(file), table.column_names, columns)
    problems, indices, rewards = (table[name].to_pylist() for name in columns)
    return rewards_by_key(zip(map(str, problems), indices, strict=True), rewards, str(file))


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


def rewards_by_key(
    keys: Iterable[Key], rewards: Iterable[float | None], where: str
) -> dict[Key, float]:
    """Index rewards by response.

    Args:
        keys: One key per verdict.
        rewards: One reward per key, in [0, 1]; None where it is missing.
        where: The file's name, for errors.

    Raises:
        StageError: A response has two verdicts, or a reward is missing or out of range.
    """
    found: dict[Key, float] = {}
    for key, reward in zip(keys, rewards, strict=True):
        if key in found:
            raise StageError(f"{where}: two verdicts on response {key[1]} of problem {key[0]}.")
        found[key] = checked_reward(reward, f"{where}: response {key[1]} of problem {key[0]}")
    return found


def rewards_of(
    keys: Iterable[Key], by_key: Mapping[Key, float], where: str
) -> npt.NDArray[np.float32]:
    """The rewards of the given responses, in their order.

    Args:
        keys: [n] keys of responses.
        by_key: The result of rewards_by_key.
        where: The source of the responses, for errors.

    Returns:
        [n] float32.

    Raises:
        StageError: A response has no verdict.
    """
    wanted = list(keys)
    missing = [key for key in wanted if key not in by_key]
    if missing:
        first = ", ".join(f"{problem}/{index}" for problem, index in missing[:5])
        raise StageError(
            f"{where}: {len(missing)} of {len(wanted)} responses have no verdict (first: {first}). "
            "A missing reward is not a 0: grade these responses too."
        )
    return np.array([by_key[key] for key in wanted], np.float32)


def pass_rates(by_key: Mapping[Key, float]) -> dict[str, float]:
    """Problem -> mean reward of its group."""
    sums: dict[str, float] = {}
    sizes: dict[str, int] = {}
    for (problem, _), reward in by_key.items():
        sums[problem] = sums.get(problem, 0.0) + reward
        sizes[problem] = sizes.get(problem, 0) + 1
    return {problem: total / sizes[problem] for problem, total in sums.items()}


def advantages(by_key: Mapping[Key, float]) -> dict[Key, float]:
    """Response -> (reward − mean of its group) / standard deviation of its group.

    The deviation is the population's. If all rewards of a group are equal, the advantage is 0.

    Args:
        by_key: The result of rewards_by_key; a group is all responses to one problem.

    Source: GRPO (arXiv 2402.03300).
    """
    groups: dict[str, list[Key]] = {}
    for key in by_key:
        groups.setdefault(key[0], []).append(key)
    found: dict[Key, float] = {}
    for keys in groups.values():
        rewards = np.array([by_key[key] for key in keys], np.float64)
        # Rounding can make the deviation of equal fractions slightly different from 0.
        spread = rewards.std() if rewards.min() < rewards.max() else np.inf
        centred = (rewards - rewards.mean()) / spread
        found.update(zip(keys, centred.tolist(), strict=True))
    return found


class Rewards:
    """Rewards with their pass rates and advantages, to be joined to responses.

    Args:
        by_key: The result of rewards_by_key.
        rates: Problem -> mean reward of its group; None: computed from ``by_key``.
    """

    def __init__(
        self, by_key: Mapping[Key, float], rates: Mapping[str, float] | None = None
    ) -> None:
        self.by_key = by_key
        self.pass_rates = rates or pass_rates(by_key)
        self.advantages = advantages(by_key)

    def join(self, keys: list[Key], where: str) -> dict[str, npt.NDArray[np.float32]]:
        """The columns ``reward``, ``pass_rate`` and ``advantage`` for the given responses.

        Args:
            keys: [n] keys of responses.
            where: The source of the responses, for errors.

        Returns:
            Column name -> [n] float32.

        Raises:
            StageError: A response has no verdict.
        """
        return {
            "reward": rewards_of(keys, self.by_key, where),
            "pass_rate": np.array([self.pass_rates[problem] for problem, _ in keys], np.float32),
            "advantage": np.array([self.advantages[key] for key in keys], np.float32),
        }
