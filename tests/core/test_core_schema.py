"""Hosts of a launch file that only sample while the others train."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from pcl_reasoner.core.schema import Placement

HOSTS = ["a", "b", "c", "d"]


def placed(sampling: list[str], **others: Any) -> Placement:
    return Placement(hosts=HOSTS, rollout={"hosts": sampling}, **others)  # type: ignore[arg-type]


def test_hosts_are_divided_and_keep_their_settings() -> None:
    placement = placed(["d", "b"], spare_hosts=["e"], devices_per_host=8, per_host={"d": {}})
    training, sampling = placement.of_training, placement.of_sampling
    assert (training.hosts, training.spare_hosts) == (["a", "c"], ["e"])
    assert (sampling.hosts, sampling.spare_hosts) == (["d", "b"], [])
    for part in (training, sampling):
        assert (part.devices_per_host, part.per_host) == (8, placement.per_host)
        assert (part.of_training, part.of_sampling) == (part, part)


def test_without_rollout_all_hosts_do_both() -> None:
    placement = Placement(hosts=HOSTS)
    assert placement.of_training is placement.of_sampling is placement


@pytest.mark.parametrize(
    ("sampling", "said"),
    [
        (["b", "z"], "'z' is not one of the hosts, which are a, b, c, d"),
        (["b", "b"], "name every host only once, got repeated b"),
        (HOSTS, "all 4 hosts sample, and none is left to train"),
        ([], "at least 1 item"),
    ],
)
def test_wrong_hosts_are_one_sentence(sampling: list[str], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        placed(sampling)


def test_wrong_hosts_of_the_file_are_reported_alone() -> None:
    with pytest.raises(ValidationError) as caught:
        Placement(hosts=["a", "a"], rollout={"hosts": ["z"]})  # type: ignore[arg-type]
    assert "'z'" not in str(caught.value)
