"""What stands in for operators that a CPU has not, and keys that were renamed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch
from mindspore import Tensor

from pcl_reasoner.trainer.cpu_operators import CpuAdamW, CpuFlashAttentionScore
from pcl_reasoner.trainer.mindformers_1_8 import install_cpu_operators, translate_older
from pcl_reasoner.trainer.rows import attention_mask

HEADS, GROUPS, SIZE, LENGTH = 4, 2, 8, 10
ENDS = [3, 7, 10]


@pytest.fixture(autouse=True)
def _graph_mode() -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_device("CPU")


def drawn(heads: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 2, (heads, LENGTH, SIZE)).astype(np.float32)


QUERY, KEY, VALUE = drawn(HEADS, 0), drawn(GROUPS, 1), drawn(GROUPS, 2)
SEGMENTS = np.array([0] * 3 + [1] * 4 + [2] * 3, np.int32)


def expected(forbidden: np.ndarray) -> np.ndarray:
    """PyTorch's attention [N, S, D]; grouped keys repeated."""
    key, value = (
        torch.from_numpy(array).repeat_interleave(HEADS // GROUPS, 0) for array in (KEY, VALUE)
    )
    found = torch.nn.functional.scaled_dot_product_attention(
        torch.from_numpy(QUERY), key, value, attn_mask=torch.from_numpy(~forbidden)
    )
    return found.numpy()


def attention(layout: str, sparse_mode: int = 0) -> Any:
    return CpuFlashAttentionScore(
        HEADS, scale_value=SIZE**-0.5, input_layout=layout, sparse_mode=sparse_mode
    )


def test_a_dense_mask_of_segments() -> None:
    mask = attention_mask(SEGMENTS)
    query, key, value = (Tensor(array[None]) for array in (QUERY, KEY, VALUE))
    *_, found = attention("BNSD")(query, key, value, attn_mask=Tensor(mask[None]))
    np.testing.assert_allclose(found.asnumpy()[0], expected(mask[0] == 1), rtol=1e-4, atol=1e-6)


def test_the_compressed_mask_is_the_dense_one() -> None:
    query, key, value = (
        Tensor(np.ascontiguousarray(array.swapaxes(0, 1))) for array in (QUERY, KEY, VALUE)
    )
    ends = Tensor(ENDS, ms.int32)
    *_, found = attention("TND")(query, key, value, actual_seq_qlen=ends, actual_seq_kvlen=ends)
    dense = expected(attention_mask(SEGMENTS)[0] == 1)
    np.testing.assert_allclose(found.asnumpy().swapaxes(0, 1), dense, rtol=1e-4, atol=1e-6)


def test_causal_without_a_mask() -> None:
    query, key, value = (Tensor(array[None]) for array in (QUERY, KEY, VALUE))
    *_, found = attention("BNSD", sparse_mode=2)(query, key, value)
    later = ~np.tril(np.ones((LENGTH, LENGTH), bool))
    np.testing.assert_allclose(found.asnumpy()[0], expected(later), rtol=1e-4, atol=1e-6)


def test_the_cpus_operators_are_what_mindformers_builds() -> None:
    from mindformers.modules import flash_attention
    from mindformers.tools.register import MindFormerRegister

    install_cpu_operators()
    found = MindFormerRegister.get_cls("optimizer", "AdamW").get_actual_adamw_cls(False)
    assert found is CpuAdamW
    assert flash_attention.FlashAttentionScore is CpuFlashAttentionScore


def test_a_layout_that_it_does_not_have_is_an_error() -> None:
    with pytest.raises(ValueError, match="layout BSH with keep_prob 1.0"):
        attention("BSH")


def test_v1s_loader_is_renamed_and_ours_is_not() -> None:
    older = {
        "type": "CommonDataLoader",
        "path": "packs",
        "load_func": "load_from_disk",
        "packing": "pack",
        "mock_config": {"size": 1},
    }
    config = {"train_dataset": {"data_loader": dict(older)}}
    assert len(translate_older(config)) == 3
    assert config["train_dataset"]["data_loader"] == {
        "type": "CommonDataLoader",
        "dataset_path": "packs",
        "load_func": "load_from_disk",
        "packing": "pack",
        "create_attention_mask": True,
    }
    ours = {"train_dataset": {"data_loader": {**older, "type": "PclPackedDataLoader"}}}
    assert translate_older(ours) == []
    assert ours["train_dataset"]["data_loader"]["path"] == "packs"


def test_a_steps_line_comes_before_its_checkpoint(tmp_path: Path) -> None:
    """MindFormers alone sorts them the other way, and a kill between would cost the line."""
    from mindformers.core.callback.callback import CheckpointMonitor, MFLossMonitor
    from mindformers.trainer.base_trainer import BaseTrainer

    from pcl_reasoner import handlers
    from pcl_reasoner.trainer.curves import PclCurves
    from pcl_reasoner.trainer.probe_callback import PclProbe
    from pcl_reasoner.trainer.step import PclMetrics

    # A probe takes minutes, and one that was cut off is made again: the checkpoint goes first.
    wanted = [
        object.__new__(one)
        for one in (MFLossMonitor, PclMetrics, PclCurves, CheckpointMonitor, PclProbe)
    ]
    for _ in range(2):
        handlers.register()
        assert BaseTrainer.sort_callbacks(wanted[::-1]) == wanted
