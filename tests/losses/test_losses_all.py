"""What holds of every loss: Cell = NumPy reference = PyTorch, packed = unpacked, empty segments."""

from __future__ import annotations

import numpy as np
import pytest
from losses_helpers import (
    batch_of,
    cell,
    drawn_batch,
    finite_differences,
    reference,
    row_of,
    torch_loss,
    with_log_probs,
)

from pcl_reasoner.losses import VARIANTS

every_loss = pytest.mark.parametrize("name", sorted(VARIANTS))


@every_loss
def test_cell_reference_and_pytorch_agree(name: str) -> None:
    batch = drawn_batch()
    value, gradient = cell(name, batch)
    theirs, their_gradient = torch_loss(name, batch)
    # Float32 against float64; MindSpore's exp on a CPU is good to five digits.
    assert value == pytest.approx(reference(name, batch), rel=1e-6, abs=1e-6)
    assert value == pytest.approx(theirs, rel=1e-6, abs=1e-6)
    assert np.abs(gradient).max() > 0.01
    np.testing.assert_allclose(gradient, finite_differences(name, batch), atol=1e-6)
    np.testing.assert_allclose(gradient, their_gradient, rtol=1e-5, atol=1e-7)


@every_loss
def test_packed_rows_give_what_one_segment_a_row_gives(name: str) -> None:
    rng = np.random.default_rng(5)
    segments = [
        ([None] * 2 + (-rng.exponential(1.0, size)).tolist(), reward)
        for size, reward in ((3, 1.0), (7, 0.0), (1, 0.4), (5, 1.0))
    ]
    packed = batch_of([segments[:3], segments[3:]], 20, places=3)
    apart = batch_of([[segment] for segment in segments], 9, places=1)
    value, gradient = cell(name, packed)
    value_apart, gradient_apart = cell(name, apart)
    assert value == pytest.approx(value_apart, rel=1e-6)
    in_order = gradient[packed.trained > 0]
    np.testing.assert_allclose(in_order, gradient_apart[apart.trained > 0], rtol=1e-5)


@every_loss
def test_a_segment_without_a_trained_token_adds_nothing(name: str) -> None:
    full = [([None, -1.0, -2.0], 1.0), ([None, -0.5], 0.0)]
    without = batch_of([full], 8, places=3)
    for place in range(3):
        rows = [[*full[:place], ([None, None], 1.0), *full[place:]]]
        value, gradient = cell(name, batch_of(rows, 8, places=3))
        assert value == pytest.approx(cell(name, without)[0], rel=1e-6)
        assert np.isfinite(gradient).all()
    nothing = batch_of([[([None, None], 1.0)]], 3, places=2)
    value, gradient = cell(name, nothing)
    assert value == 0.0 and not gradient.any()
    assert reference(name, nothing) == 0.0


@every_loss
def test_parts_of_a_batch_add_up_to_the_whole(name: str) -> None:
    """Weights come from the loader, so ranks and micro-batches only sum."""
    whole = drawn_batch(7)
    parts = [row_of(whole, row) for row in range(2)]
    values, gradients = zip(*(cell(name, part) for part in parts), strict=True)
    value, gradient = cell(name, whole)
    assert sum(values) == pytest.approx(value, rel=1e-6)
    np.testing.assert_allclose(np.concatenate(gradients), gradient, rtol=1e-6)


@every_loss
def test_untrained_tokens_have_no_say(name: str) -> None:
    batch = drawn_batch()
    value, gradient = cell(name, batch)
    assert not gradient[batch.trained == 0].any()
    changed = np.where(batch.trained > 0, batch.log_probs, np.float32(-17.0))
    assert cell(name, with_log_probs(batch, changed))[0] == value
