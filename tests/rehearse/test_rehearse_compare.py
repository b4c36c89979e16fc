"""Errors of tensors and steps by hand; what is not finite or missing is never within a limit."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.rehearse import compare
from pcl_reasoner.rehearse.compare import Comparison, Tensor, as_json, summary
from pcl_reasoner.rehearse.run import Finished

INFINITE = float("inf")


def comparison(tensors: list[Tensor], loss: list[float] | None = None) -> Comparison:
    return Comparison(loss or [0.0, 0.0], [0.0, 0.0], [0.0, 0.0], tensors, [])


def test_a_gradients_error_is_relative_to_the_complete_tensor() -> None:
    """The slice is off by 0.5; the largest number of the tensor, 10, is in another slice."""
    complete = np.array([1.0, 2.0, -10.0], np.float32)
    held = np.array([1.0, 2.5], np.float32)
    assert compare._error("adam_m.w", complete[:2], held, complete, 1e-4) == 0.05
    assert compare._error("adam_m.w", complete, held, complete, 1e-4) == INFINITE
    wrong = np.array([1.0, np.nan], np.float32)
    assert compare._error("adam_m.w", complete[:2], wrong, complete, 1e-4) == INFINITE


def test_a_parameter_that_was_not_updated_has_error_one() -> None:
    """AdamW's first update moves every number by the learning rate."""
    before = np.array([0.5, -0.25, 1.0, 0.75])
    after = before + 1e-4 * np.array([1, -1, 1, 1])
    assert compare._error("w", after, before, after, 1e-4) == pytest.approx(1.0)
    one_sign = after.copy()
    one_sign[0] -= 2e-4
    assert compare._error("w", after, one_sign, after, 1e-4) == pytest.approx(1.0)
    many = np.tile(after, 1000)
    other = many.copy()
    other[0] -= 2e-4
    assert compare._error("w", many, other, many, 1e-4) == pytest.approx(2 / math.sqrt(4000))


def test_a_norm_that_is_missing_on_one_side_is_an_error() -> None:
    assert compare._relative([2.0, None, None], [2.5, None, 1.0]) == [0.25, 0.0, INFINITE]


def test_limits_by_kind_and_by_step() -> None:
    tensors = [
        Tensor("adam_m.a", "gradient", 2e-5, 3, 4),
        Tensor("adam_v.a", "squared gradient", 1.5e-5, 0, 4),
        Tensor("a", "parameter", 0.2, 1, 4),
        Tensor("b", "parameter", INFINITE, 1, 4),
    ]
    found = comparison(tensors, [5e-6, 5e-5])
    assert [one.name for one in found.off()] == ["adam_m.a", "a", "b"]
    assert found.steps_off() == []
    assert comparison([], [2e-5, 2e-4]).steps_off() == [("loss", 1, 2e-5), ("loss", 2, 2e-4)]
    assert dict(summary(found))["parameter"] == INFINITE
    assert (
        json.loads(json.dumps(as_json(found), allow_nan=False))["tensors"][3]["error"] == "infinite"
    )


def test_runs_of_different_length_are_refused(tmp_path: Path) -> None:
    runs = [Finished(tmp_path, 1.0, [{"step": 1}] * count) for count in (1, 2)]
    with pytest.raises(StageError, match="has 2 steps, the one process has 1"):
        compare.compare(*runs)
