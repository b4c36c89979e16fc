"""What is said of single responses: numbers by hand, and what a recipe must have for it."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from train_helpers import train_config

from pcl_reasoner.core.errors import InputError
from pcl_reasoner.perplexity.inspect import (
    TOKENS_SHOWN,
    figures_of,
    find_samples,
    find_train,
    spaced_indices,
)


class Letters:
    """A tokenizer whose token i is the i-th letter."""

    def decode(self, ids: list[int], skip_special_tokens: bool) -> str:
        assert not skip_special_tokens
        return "".join(chr(ord("a") + i) for i in ids)


def record(labels: list[int]) -> dict[str, Any]:
    return {
        "problem_id": "9f0c",
        "sample_index": 3,
        "input_ids": list(range(len(labels))),
        "labels": labels,
        "reward": 1.0,
        "pass_rate": 0.5,
        "advantage": None,
    }


def test_a_response_by_hand() -> None:
    """π = 1, 1/2, 1/4 with gradients 1, 0.2, −0.4: figures 0, 0.1, 0.3."""
    log_probs = np.log([9.0, 9.0, 1.0, 0.5, 0.25])
    entropies = np.array([7.0, 7.0, 0.0, 0.5, 1.0])
    gradient = np.array([5.0, 5.0, 1.0, 0.2, -0.4])
    found = figures_of(record([-100, -100, 2, 3, 4]), [log_probs, entropies, gradient], Letters())
    assert (found.length, found.reward, found.pass_rate, found.advantage) == (3, 1.0, 0.5, None)
    assert found.m == pytest.approx(math.log(1 / 8) / 3)
    assert found.p == pytest.approx(0.5)
    assert found.weight == pytest.approx(1.6)
    assert found.entropy == pytest.approx(0.5)
    assert [(token.place, token.text) for token in found.tokens] == [(4, "e"), (3, "d"), (2, "c")]
    assert [token.figure for token in found.tokens] == pytest.approx([0.3, 0.1, 0.0])


def test_only_the_heaviest_tokens_are_kept_and_nothing_trained_is_nothing() -> None:
    many = np.full(20, -1.0)
    found = figures_of(record([-100] + list(range(1, 20))), [many, many, many], Letters())
    assert len(found.tokens) == TOKENS_SHOWN
    empty = figures_of(record([-100] * 4), [many[:4]] * 3, Letters())
    assert (empty.length, empty.m, empty.p, empty.weight, empty.tokens) == (0, 0.0, 0.0, 0.0, [])


def test_responses_are_evenly_spaced() -> None:
    assert spaced_indices(10, 4) == [0, 2, 5, 7]
    assert spaced_indices(3, 16) == [0, 1, 2]


def stage(kind: str, folder: str, **inputs: str) -> Any:
    given = {role: SimpleNamespace(path=Path(path)) for role, path in inputs.items()}
    config = train_config() if kind == "train" else None
    return SimpleNamespace(
        spec=SimpleNamespace(type=kind, name=kind, config=config),
        title=f"r/{kind}",
        folder=Path(folder),
        inputs=given,
    )


def test_the_samples_are_those_that_the_packed_rows_are_made_of() -> None:
    old = stage("old_log_probs", "f", samples="t")
    pack, train = stage("pack", "p", samples="f"), stage("train", "x", packs="p")
    plan: Any = SimpleNamespace(stages=[stage("tokenize", "t"), old, pack, train])
    assert find_samples(plan, find_train(plan)) is old
    plan.stages.remove(pack)
    with pytest.raises(InputError, match="packed from a source"):
        find_samples(plan, train)
    plan.stages.remove(train)
    with pytest.raises(InputError, match="is of type old_log_probs, expected train"):
        find_train(plan)
