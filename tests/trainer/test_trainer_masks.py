"""What a token sees in the real model: earlier tokens of its own segment, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from model_helpers import build, columns, logits_cell, loss_and_gradients
from train_helpers import LENGTH, PLACES, VOCABULARY, packed_row, write_policy
from transformers import AutoModelForCausalLM

pytestmark = pytest.mark.slow

ENDS = [11, 25]
"""Two segments, then seven places of padding."""


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_policy(tmp_path_factory.mktemp("masks") / "policy")


def with_other_token(row: dict[str, Any], place: int) -> dict[str, Any]:
    """The row with another input there; labels stay, so only what is seen differs."""
    ids = row["input_ids"].copy()
    ids[place] = (ids[place] + 7) % VOCABULARY
    return {**row, "input_ids": ids}


def logits_of(cell: Any, row: dict[str, Any]) -> np.ndarray:
    given = columns([row], PLACES)
    names = ("input_ids", "attention_mask", "position_ids")
    found: np.ndarray = cell(*(given[name] for name in names)).asnumpy()
    return found.reshape(LENGTH, -1)


@pytest.fixture(scope="module")
def ours(policy: Path) -> Any:
    return logits_cell(build(policy))


def test_a_later_token_changes_nothing_before_it_and_another_segments_nothing_at_all(
    ours: Any,
) -> None:
    row = packed_row(ENDS, LENGTH)
    before = logits_of(ours, row)
    for place, changed in ((6, range(6, 11)), (11, range(11, 25)), (24, range(24, 25))):
        after = logits_of(ours, with_other_token(row, place))
        differs = [i for i in range(LENGTH) if (before[i] != after[i]).any()]
        assert differs == list(changed), place


def test_packed_logits_are_those_of_each_segment_alone(ours: Any, policy: Path) -> None:
    row = packed_row(ENDS, LENGTH)
    found = logits_of(ours, row)
    alone = AutoModelForCausalLM.from_pretrained(policy).eval()
    for start, end in ((0, 11), (11, 25)):
        with torch.no_grad():
            expected = alone(torch.tensor(row["input_ids"][None, start:end])).logits[0].numpy()
        np.testing.assert_allclose(found[start:end], expected, rtol=1e-4, atol=1e-4)


def test_positions_restart_in_the_columns_and_mindformers_counts_along_the_row(ours: Any) -> None:
    """MindFormers' Llama does not read position_ids while training; rotary sees distances alone.

    So the packed logits above are right, and once this fails position_ids have come to matter.
    """
    given = columns([packed_row(ENDS, LENGTH)], PLACES)
    positions = given["position_ids"]
    assert positions.asnumpy()[0].tolist() == [*range(11), *range(14), *range(7)]
    with_gaps = type(positions)(positions.asnumpy() * 3)
    before, after = (
        ours(given["input_ids"], given["attention_mask"], ids).asnumpy()
        for ids in (positions, with_gaps)
    )
    np.testing.assert_array_equal(before, after)


def test_without_flash_attention_mindformers_lets_every_token_see_later_ones(policy: Path) -> None:
    """The trap that refuse_wrong_masks is there for; once this fails, it has been mended."""
    trapped = logits_cell(build(policy, use_flash_attention=False))
    row = packed_row(ENDS, LENGTH)
    before, after = logits_of(trapped, row), logits_of(trapped, with_other_token(row, 24))
    assert (before[0] != after[0]).any()
    assert (before[10] != after[10]).any()


@pytest.mark.parametrize(
    ("changes", "compressed", "said"),
    [
        (
            {"use_flash_attention": False},
            False,
            "use_flash_attention is False, and the data contain",
        ),
        (
            {},
            True,
            "use_eod_attn_mask_compression is False, and the data contain actual_seq_len",
        ),
    ],
)
def test_the_model_refuses_both_traps_whoever_starts_it(
    policy: Path, changes: dict[str, Any], compressed: bool, said: str
) -> None:
    model = build(policy, **changes)
    with pytest.raises(ValueError, match=said):
        model(**columns([packed_row(ENDS, LENGTH)], PLACES, compressed))


LONG, LONG_ENDS = 2048, [700, 701, 1600, 2000]


def long_batch(compressed: bool) -> dict[str, Any]:
    """Two rows of 2 048 tokens, all of whose places for segments are taken."""
    import mindspore as ms
    from mindformers.dataset.causal_language_model_dataset import asl_batch_wrapper

    given = columns([packed_row(LONG_ENDS, LONG, seed) for seed in (1, 2)], PLACES, compressed)
    if compressed:
        # MindFormers' own: the second row's ends go on from the first's.
        ends = list(given["actual_seq_len"].asnumpy())
        (together,) = asl_batch_wrapper(ends, None, micro_batch_num=1)
        given["actual_seq_len"] = ms.Tensor(np.stack(together))
    return given


def test_the_compressed_mask_at_2048_tokens_is_the_dense_one(policy: Path) -> None:
    shape = {"seq_length": LONG, "batch_size": 2}
    dense_loss, dense = loss_and_gradients(build(policy, **shape), long_batch(compressed=False))
    model = build(policy, **shape, use_eod_attn_mask_compression=True)
    loss, gradients = loss_and_gradients(model, long_batch(compressed=True))
    assert loss == pytest.approx(dense_loss, rel=1e-5)
    assert gradients.keys() == dense.keys()
    for name, gradient in gradients.items():
        scale = np.abs(dense[name]).max()
        assert scale > 0, name
        np.testing.assert_allclose(gradient, dense[name], rtol=0, atol=1e-4 * scale, err_msg=name)
