"""What hardware-check compares with: references, figures, the settings of the small model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pcl_reasoner.hardware_check import references, small, training
from pcl_reasoner.hardware_check.check import FIGURES
from pcl_reasoner.hardware_check.outcome import Setting, against_figures, compare
from pcl_reasoner.hardware_check.parts import PARTS
from pcl_reasoner.train.config import TrainConfig


def test_an_error_is_a_share_of_the_largest_expected_number() -> None:
    check = compare("x", np.array([[1.0, -4.1], [0.2, 0.0]]), np.array([[1, -4], [0, 0]]), 0.05)
    # 0.1 and 0.2 off; the larger one counts, against 4.
    assert (check.got, check.expected) == (0.2, 0.0)
    assert check.error == pytest.approx(0.05) and check.ok
    assert not compare("x", 4.3, 4.0, 0.05).ok
    assert compare("x", 0.04, 0.0, 0.05).ok and not compare("x", 0.06, 0.0, 0.05).ok


def test_what_is_not_finite_or_of_another_shape_is_incorrect() -> None:
    for value in (float("nan"), float("inf")):
        check = compare("x", np.array([0.0, value, 5.0]), np.array([0.0, 1.0, 2.0]), 1e9)
        assert (check.ok, check.got, check.expected) == (False, str(value), 1.0)
        json.dumps(check.__dict__, allow_nan=False)
    assert not compare("x", np.zeros(2), np.zeros((2, 1)), 1.0).ok


def test_figures_are_compared_step_by_step_and_none_may_lack() -> None:
    found = {"hash": "ab", "a.loss": 1.01, "norm": [1.0, 2.5, 3.0]}
    limits = {"loss": 0.02, "norm": 0.1}

    def incorrect(**changes: Any) -> list[str]:
        figures = {"hash": "ab", "a.loss": 1.0, "norm": [1.0, 2.5, 3.0]} | changes
        return [one.name for one in against_figures(found, figures, limits) if not one.ok]

    assert incorrect() == []
    assert incorrect(norm=[1.0, 2.0, 3.0]) == ["norm, step 2"]
    assert incorrect(hash="ac", **{"a.loss": 1.04}) == ["hash", "a.loss"]
    assert incorrect(norm=[1.0]) == ["norm"] and incorrect(norm=None) == ["norm"]
    assert against_figures(found, None, limits) == []


def leaf(*shape: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()


def agree(found: Any, output: torch.Tensor, cotangent: torch.Tensor, *leaves: torch.Tensor) -> None:
    """Output and gradients against PyTorch's, in float64."""
    output.backward(cotangent)
    for one, other in zip(found, (output.detach(), *(x.grad for x in leaves)), strict=True):
        np.testing.assert_allclose(one, other.numpy(), rtol=1e-10, atol=1e-12)


def test_the_references_are_pytorchs_forward_and_backward() -> None:
    query, key, value = leaf(4, 6, 8, seed=0), leaf(2, 6, 8, seed=1), leaf(2, 6, 8, seed=2)
    cotangent = leaf(4, 6, 8, seed=3).detach()
    forbidden = torch.triu(torch.ones(6, 6, dtype=torch.bool), 1)
    forbidden[3:, :2] = True
    repeated = (one.repeat_interleave(2, 0) for one in (key, value))
    output = torch.nn.functional.scaled_dot_product_attention(
        query, *repeated, attn_mask=~forbidden
    )
    arrays = [one.detach().numpy() for one in (query, key, value)]
    found = references.attention(*arrays, forbidden.numpy(), cotangent.numpy())
    agree(found, output, cotangent, query, key, value)

    x, weight = leaf(5, 12, seed=4), leaf(12, seed=5)
    cotangent = leaf(5, 12, seed=6).detach()
    found = references.rms_norm(
        x.detach().numpy(), weight.detach().numpy(), 1e-6, cotangent.numpy()
    )
    agree(found, torch.nn.functional.rms_norm(x, (12,), weight, 1e-6), cotangent, x, weight)


def test_the_rotary_reference_turns_pairs_by_the_angle_of_their_place() -> None:
    """θ = 100, D = 4: pair 0 (places 0 and 2) turns by 1 a position, pair 1 by 100^(−1/2)."""
    x = np.tile([1.0, 1.0, 0.0, 0.0], (1, 3, 1))
    output, gradient = references.rotary(x, 100.0, x)
    for place in range(3):
        angles = np.array([place, place / 10])
        np.testing.assert_allclose(output[0, place], [*np.cos(angles), *np.sin(angles)])
        # Backward is the turn back.
        np.testing.assert_allclose(gradient[0, place], [*np.cos(angles), *-np.sin(angles)])


def test_the_shipped_figures_are_of_this_model_and_of_every_step(tmp_path: Path) -> None:
    figures = json.loads(FIGURES.read_text())
    weights = small.write_policy(tmp_path / "policy")
    assert {figures[name]["weights"] for name in ("packed", "training")} == {weights}
    for key in ("loss", "grad_norm"):
        assert len(figures["training"][key]) == training.STEPS
    # OPG says something only where p is neither 0 nor 1, and losses differ from step to step.
    assert np.ptp(figures["training"]["loss"]) > 0.1


@pytest.mark.parametrize(
    ("part", "layout", "micro_batches"),
    [
        ("training", (1, 1, 1), 1),
        ("data_parallel", (2, 1, 1), 1),
        ("tensor_pipeline", (1, 2, 2), 4),
    ],
)
def test_every_layout_trains_on_the_same_batches(
    part: str,
    layout: tuple[int, int, int],
    micro_batches: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    used: list[TrainConfig] = []

    def keep(config: TrainConfig, *others: Any) -> Any:
        used.append(config)
        raise InterruptedError

    monkeypatch.setattr(training, "train", keep)
    with pytest.raises(InterruptedError):
        getattr(training, PARTS[part].function)(Setting("Ascend"), tmp_path)
    (config,) = used
    assert (config.data_parallel, config.model_parallel, config.pipeline_stage) == layout
    assert (config.micro_batch_num, config.global_batch_size) == (micro_batches, 4)
    assert (config.device, config.precision, config.loss) == ("Ascend", "bfloat16", "opg")
    assert config.devices == PARTS[part].devices


def test_a_batchs_loss_is_the_last_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four ranks, two stages: ranks 2 and 3 know the loss, times the scale of the weights."""
    config = training.settings(Setting("Ascend"), (1, 2, 2))
    monkeypatch.setattr(training, "gradient_scale", lambda config: 4.0)
    records = [{"loss": [9.0, 9.0], "grad_norm": [8.0, 8.0]}] * 2
    records += [{"loss": [2.0, 3.2], "grad_norm": [0.5, 0.7]}] * 2
    assert training.step_values(config, records, "loss") == pytest.approx([0.5, 0.8])
    assert training.step_values(config, records, "grad_norm") == pytest.approx([0.5, 0.7])
    # Two data-parallel ranks on a CPU: each has half, times two.
    config = training.settings(Setting("CPU"), (2, 1, 1))
    records = [{"loss": [0.2]}, {"loss": [0.6]}]
    assert training.step_values(config, records, "loss") == pytest.approx([0.4])
