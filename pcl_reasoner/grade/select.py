"""Which responses are trained on, by the rewards of their groups and by length."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np

from pcl_reasoner.core.schemas import Key
from pcl_reasoner.grade.rewards import pass_rates

DropGroups = Literal["none", "all_incorrect", "both"]


def shuffled(by_key: Mapping[Key, float], seed: int) -> dict[Key, float]:
    """Exchange rewards among all responses of mixed groups: a control in which they say nothing.

    Only groups with correct and incorrect responses take part, so that the same responses are
    selected and the share of correct ones stays.

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
        ``mixed_rows`` in groups with correct and incorrect ones, ``mixed_correct`` and
        ``mixed_incorrect`` of them (names as in ``pclr-ms recount``); ``left_by_groups`` by this
        choice.
    """
    rates = pass_rates(by_key)
    mixed = [reward for key, reward in by_key.items() if 0.0 < rates[key[0]] < 1.0]
    correct = sum(reward >= 0.5 for reward in mixed)
    left = sum(drop_reason(rates[key[0]], 0, drop_groups, None) is None for key in by_key)
    return {
        "mixed_rows": len(mixed),
        "mixed_correct": correct,
        "mixed_incorrect": len(mixed) - correct,
        "left_by_groups": left,
    }


def drop_reason(
    pass_rate: float, n_tokens: int, drop_groups: DropGroups, max_response_tokens: int | None
) -> str | None:
    """Why a response is not trained on, or None when it is.

    Args:
        pass_rate: Of its group; 0 only if all are incorrect, 1 only if all are wholly correct.
        n_tokens: The response's length.
        drop_groups: ``all_incorrect`` drops groups from which only what not to do can be learnt;
            ``both`` also those without an incorrect response.
        max_response_tokens: Longer responses are dropped; None for no limit.
    """
    if drop_groups != "none" and pass_rate == 0.0:
        return "all_incorrect_group"
    if drop_groups == "both" and pass_rate == 1.0:
        return "all_correct_group"
    if max_response_tokens is not None and n_tokens > max_response_tokens:
        return "over_length"
    return None
