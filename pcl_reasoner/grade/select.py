"""Choose the responses to train on, by the rewards of their groups and by their lengths."""

from collections.abc import Mapping

import numpy as np

from pcl_reasoner.core.schemas import Key
from pcl_reasoner.grade.config import DropGroups
from pcl_reasoner.grade.rewards import pass_rates


def shuffled(by_key: Mapping[Key, float], seed: int) -> dict[Key, float]:
    """Exchange rewards at random among all responses of mixed groups: a control experiment.

    A mixed group has correct and incorrect responses to one problem. The exchanged rewards carry no
    information. All other groups keep their rewards. Therefore the stage still selects the same
    responses, with the same share of correct ones.

    Args:
        by_key: The result of read_rewards.
        seed: Seed of the exchange.
    """
    rates = pass_rates(by_key)
    mixed = [key for key in sorted(by_key) if 0.0 < rates[key[0]] < 1.0]
    order = np.random.default_rng(seed).permutation(len(mixed))
    exchanged = {key: by_key[mixed[index]] for key, index in zip(mixed, order, strict=True)}
    return {**by_key, **exchanged}


def group_figures(by_key: Mapping[Key, float], drop_groups: DropGroups) -> dict[str, int]:
    """Count responses in mixed and in kept groups; as upstream, ignore the limit on their length.

    Args:
        by_key: The result of read_rewards.
        drop_groups: As in drop_reason.

    Returns:
        ``mixed_rows``: responses in groups with both correct and incorrect ones;
        ``mixed_correct`` and ``mixed_incorrect``: the correct and the incorrect ones among these
        (names as in ``pclr-ms recount``); ``left_by_groups``: responses in kept groups.
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
    """Return why a response is dropped; None if it is kept for training.

    Args:
        pass_rate: Mean reward of the response's group; 0 if all rewards are 0, 1 if all are 1.
        n_tokens: The response's length.
        drop_groups: ``all_incorrect`` drops groups without a correct response; ``both`` also drops
            groups without an incorrect one; ``none`` keeps all groups.
        max_response_tokens: Longer responses are dropped; None for no limit.
    """
    if drop_groups != "none" and pass_rate == 0.0:
        return "all_incorrect_group"
    if drop_groups == "both" and pass_rate == 1.0:
        return "all_correct_group"
    if max_response_tokens is not None and n_tokens > max_response_tokens:
        return "over_length"
    return None
