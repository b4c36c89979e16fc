"""Which layers and operators MindFormers recomputes by the launch files' keys; gradients stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from model_helpers import build, columns, loss_and_gradients
from train_helpers import LENGTH, PLACES, packed_row, write_policy

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
V1 = yaml.safe_load((ROOT / "launch" / "v1_dp8_tp8_pp2.yaml").read_text())["hashed"]["train"]
V15 = yaml.safe_load((ROOT / "launch" / "atlas_910c_16x8.yaml").read_text())["hashed"]["train"]


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_policy(tmp_path_factory.mktemp("recompute") / "policy", layers=2)


def built(policy: Path, recompute: Any, select: Any = False) -> Any:
    from pcl_reasoner.worker.entry import import_mindformers

    import_mindformers()
    from mindformers.modules.transformer import (
        TransformerOpParallelConfig,
        TransformerRecomputeConfig,
    )

    settings = TransformerRecomputeConfig(recompute=recompute, select_recompute=select)
    parallel = TransformerOpParallelConfig(recompute=settings)
    return build(policy, parallel_config=parallel, seq_length=LENGTH, batch_size=1)


def whole_layers(model: Any) -> list[bool]:
    return ["output_no_recompute" in layer.get_flags() for layer in model.model.layers]


def operators(model: Any) -> set[str]:
    """Operators that are recomputed by themselves, as ``0.feed_forward.mul``."""
    return {
        f"{cell}.{name}"
        for cell, found in model.model.layers.cells_and_names()
        for name, operator in found.__dict__.get("_primitives", {}).items()
        if operator is not None and operator.attrs.get("recompute")
    }


def test_v15_recomputes_every_layer(policy: Path) -> None:
    model = built(policy, V15["recompute"], V15.get("select_recompute", False))
    assert whole_layers(model) == [True, True]
    assert operators(model) == set()


def test_v1_recomputes_so_many_layers_and_operators_of_the_rest(policy: Path) -> None:
    """Of V1's four patterns one names nothing here: the activation is in w1 (qkv_concat off)."""
    assert V1["recompute"] == [23, 18]
    model = built(policy, [1], V1["select_recompute"])
    assert whole_layers(model) == [True, False]
    assert operators(model) == {
        "1.feed_forward.mul",
        "1.feed_forward.reshape",
        "1.feed_forward.w2.reshape",
    }
    own = built(policy, False, [*V1["select_recompute"], r"feed_forward\.w1\.activation\.silu"])
    assert "0.feed_forward.w1.activation.silu" in operators(own)


def test_recomputed_gradients_are_the_same(policy: Path) -> None:
    given = columns([packed_row([11, 25], LENGTH)], PLACES)
    _, plain = loss_and_gradients(built(policy, False), given)
    _, found = loss_and_gradients(built(policy, [1], V1["select_recompute"]), given)
    for name, gradient in found.items():
        np.testing.assert_array_equal(gradient, plain[name], err_msg=name)
