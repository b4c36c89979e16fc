"""Choose the responses to train on, by the rewards of their groups and by their lengths."""

from collections.abc import Mapping

import numpy as np

from pcl_reasoner.core.schemas import Key
from pcl_reasoner.grade.config import DropGroups
from pcl_reasoner.grade.rewards import pass_rates


def shuffled(by_key: Mapping[Key, float], seed: int) -> dict[Key, float]:
    """Exchange rewards among all responses of mixed groups: a control experiment.

    The exchanged rewards carry no information. Only groups with both correct and incorrect
    responses take part, so that the same responses are selected and the share of correct responses
    stays the same.

    Args:
        by_key: The result of rewards_by_key.
        seed: Seed of the exchange.
    """
    rates = pass_rates(by_key)
    mixed = [key for key in sorted(by_key) if 0.0 < rates[key[0]] < 1.0]
    order = np.random.default_rng(seed).permutation(len(mixed))
    exchanged = {key: by_key[mixed[index]] for key, index in zip(mixed, order, strict=True)}
    return {**by_key, **exchanged}


def group_figures(by_key: Mapping[Key, float], drop_groups: DropGroups) -> dict[str, int]:
    """Counts of responses by their groups, before any length limit, to compare with published ones.

    Args:
        by_key: The result of rewards_by_key.
        drop_groups: As in drop_reason.

    Returns:
        ``mixed_rows``: responses in groups with both correct and incorrect ones;
        ``mixed_correct`` and ``mixed_incorrect``: the correct and the incorrect ones among these
        (names as in ``pclr-ms recount``); ``left_by_groups``: responses that drop_groups keeps.
    """
    rates = pass_rates(by_key)
    mixed = [reward for key, reward in by_key.items() if 0.0 < rates[key[0]] < 1.0]
    correct = sum(reward >= 0.5 for reward in mixed)
    kept = sum(drop_reason(rates[key[0]], 0, drop_groups, None) is None for key in by_key)
    return {
        "mixed_rows": len(mixed),
        "mixed_correct": correct,
        "mixed_incorrect": len(mixed) - correct,
        "left_by_groups": kept,
    }


def drop_reason(
    pass_rate: float, n_tokens: int, drop_groups: DropGroups, max_response_tokens: int | None
) -> str | None:
    """Why a response is dropped; None when it is trained on.

    Args:
        pass_rate: Mean reward of its group; 0 only if every reward is 0, 1 only if every one is 1.
        n_tokens: The response's length.
        drop_groups: ``all_incorrect`` drops groups that only show what not to do; ``both`` also
            drops groups without an incorrect response.
        max_response_tokens: Longer responses are dropped; None for no limit.
    """
    if drop_groups != "none" and pass_rate == 0.0:
        return "all_incorrect_group"
    if drop_groups == "both" and pass_rate == 1.0:
        return "all_correct_group"
    if max_response_tokens is not None and n_tokens > max_response_tokens:
        return "over_length"
    return None
