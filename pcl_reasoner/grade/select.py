"""Verdicts -> rewards, pass rates and the responses that are trained on.

A verdict: ("9f0c…", 3) -> right, reward 1.0. A group is all responses to one problem; its pass
rate is the mean of their rewards. A reward that is missing is an error, never a 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import numpy as np
import numpy.typing as npt

from pcl_reasoner.errors import StageError

Key = tuple[str, int]
"""(problem_id, sample_index): what identifies a response."""
DropGroups = Literal["none", "all_wrong", "both"]


def rewards_by_key(
    keys: Iterable[Key], rewards: Iterable[float | None], where: str
) -> dict[Key, float]:
    """Index rewards by response.

    Args:
        keys: One a verdict.
        rewards: In [0, 1], float32.
        where: The file's name, for errors.

    Raises:
        StageError: Two verdicts on one response, or a reward that is none.
    """
    found: dict[Key, float] = {}
    for key, reward in zip(keys, rewards, strict=True):
        if key in found:
            raise StageError(f"{where}: two verdicts on response {key[1]} of problem {key[0]}.")
        # The comparison is false for NaN too.
        if reward is None or not 0.0 <= reward <= 1.0:
            raise StageError(
                f"{where}: the reward of response {key[1]} of problem {key[0]} must be in [0, 1], "
                f"got {reward}. Grade again."
            )
        found[key] = reward
    return found


def rewards_of(
    keys: Iterable[Key], by_key: Mapping[Key, float], where: str
) -> npt.NDArray[np.float32]:
    """The rewards of these responses, in their order.

    Args:
        keys: [n] responses.
        by_key: As rewards_by_key gives it.
        where: What the responses are from, for errors.

    Returns:
        [n] float32.

    Raises:
        StageError: A response has no verdict.
    """
    wanted = list(keys)
    missing = [key for key in wanted if key not in by_key]
    if missing:
        named = ", ".join(f"{problem}/{index}" for problem, index in missing[:5])
        raise StageError(
            f"{where}: {len(missing)} of {len(wanted)} responses have no verdict (first: {named}). "
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

    The deviation is the population's. Where all rewards are equal there is nothing to prefer: 0.

    Args:
        by_key: As rewards_by_key gives it; a group is all of a problem's responses.

    Source: GRPO (arXiv 2402.03300).
    """
    groups: dict[str, list[Key]] = {}
    for key in by_key:
        groups.setdefault(key[0], []).append(key)
    found: dict[Key, float] = {}
    for keys in groups.values():
        rewards = np.array([by_key[key] for key in keys], np.float64)
        # Of equal fractions the deviation is not always 0 to the last bit.
        spread = rewards.std() if rewards.min() < rewards.max() else np.inf
        centred = (rewards - rewards.mean()) / spread
        found.update(zip(keys, centred.tolist(), strict=True))
    return found


def shuffled(by_key: Mapping[Key, float], seed: int) -> dict[Key, float]:
    """Exchange rewards among all responses of mixed groups: a control in which they say nothing.

    Only groups with right and wrong responses take part, so that the same responses are selected
    and the share of right ones stays.

    Args:
        by_key: As rewards_by_key gives it.
        seed: Of the exchange.
    """
    rates = pass_rates(by_key)
    mixed = [key for key in sorted(by_key) if 0.0 < rates[key[0]] < 1.0]
    order = np.random.default_rng(seed).permutation(len(mixed))
    exchanged = {key: by_key[mixed[place]] for key, place in zip(mixed, order, strict=True)}
    return {**by_key, **exchanged}


def group_figures(by_key: Mapping[Key, float], drop_groups: DropGroups) -> dict[str, int]:
    """What published counts stand beside: responses of groups, before any limit of length.

    Args:
        by_key: As rewards_by_key gives it.
        drop_groups: As in drop_reason.

    Returns:
        ``mixed_rows`` in groups with right and wrong ones, ``mixed_right`` and ``mixed_wrong`` of
        them (names as in ``pclr-ms recount``); ``left_by_groups`` by this choice.
    """
    rates = pass_rates(by_key)
    mixed = [reward for key, reward in by_key.items() if 0.0 < rates[key[0]] < 1.0]
    right = sum(reward >= 0.5 for reward in mixed)
    left = sum(drop_reason(rates[key[0]], 0, drop_groups, None) is None for key in by_key)
    return {
        "mixed_rows": len(mixed),
        "mixed_right": right,
        "mixed_wrong": len(mixed) - right,
        "left_by_groups": left,
    }


def drop_reason(
    pass_rate: float, n_tokens: int, drop_groups: DropGroups, max_tokens: int | None
) -> str | None:
    """Why a response is not trained on, or None when it is.

    Args:
        pass_rate: Of its group; 0 only if all are wrong, 1 only if all are wholly right.
        n_tokens: The response's length.
        drop_groups: ``all_wrong`` drops groups from which only what not to do can be learnt;
            ``both`` also those without a wrong response.
        max_tokens: Longer responses are dropped; None for no limit.
    """
    if drop_groups != "none" and pass_rate == 0.0:
        return "all_wrong_group"
    if drop_groups == "both" and pass_rate == 1.0:
        return "all_right_group"
    if max_tokens is not None and n_tokens > max_tokens:
        return "over_length"
    return None
