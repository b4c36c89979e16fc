"""Differences, limits, stored segments and the orders of heads, with numbers worked by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prove_helpers import write_stored

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.stage import StageConfig
from pcl_reasoner.prove.cause import Tried
from pcl_reasoner.prove.config import LIMITS, ProveConfig
from pcl_reasoner.prove.message import failure
from pcl_reasoner.prove.rearranged import rounded_to_bfloat16, rounded_to_float16, rows_of
from pcl_reasoner.prove.stored import stored_segments
from pcl_reasoner.prove.suspects import AS_TRAINED, Suspect, groups
from pcl_reasoner.recheck.difference import Difference, difference
from pcl_reasoner.recheck.limits import Limits
from pcl_reasoner.weights.model_config import ModelShape
from pcl_reasoner.weights.stream import StoredTensor


def array(*values: float) -> Any:
    return np.array(values, np.float32)


def test_a_difference_by_position() -> None:
    found = difference([array(-0.5, -2.0), array(-0.25)], [array(-0.5, -2.5), array(-0.5)])
    assert (found.tokens, found.mean, found.largest) == (3, 0.25, 0.5)
    # Between the two largest, 0.25 and 0.5: position 0.99 x 2 = 1.98 of the sorted values.
    assert found.p99 == pytest.approx(0.25 + 0.98 * 0.25)
    assert [(one.first, one.end, one.tokens, one.mean) for one in found.by_position] == [
        (1, 2, 2, 0.125),
        (2, 4, 1, 0.5),
    ]


def test_each_limit_counts_and_nan_is_beyond_all() -> None:
    found = Difference(3, 0.1, 0.2, 0.3, ())
    assert found.within(Limits(mean=0.1, p99=0.2, largest=0.3))
    assert not found.within(Limits(mean=0.09, p99=1, largest=1))
    assert not found.within(Limits(mean=1, p99=0.19, largest=1))
    assert not found.within(Limits(mean=1, p99=1, largest=0.29))
    unknown = difference([array(float("nan"))], [array(-1)])
    assert not unknown.within(Limits(mean=9, p99=9, largest=9))


def test_the_coarser_data_type_decides() -> None:
    assert ProveConfig().accepted() == LIMITS["bfloat16"]
    assert ProveConfig(precision="float32").accepted() == LIMITS["float32"]
    assert ProveConfig(precision="float32", server_dtype="float16").accepted() == LIMITS["float16"]
    mixed = ProveConfig(precision="float16", server_dtype="bfloat16")
    assert mixed.accepted() == LIMITS["bfloat16"]
    own = Limits(mean=1, p99=2, largest=3)
    assert ProveConfig(limits=own).accepted() == own
    # A server has the context of the longest stored response, and one token more.
    [needs] = ProveConfig(seq_length=64).servers()
    assert (needs.role, needs.name, needs.max_model_len) == ("model", "policy", 65)
    assert ProveConfig(engine="local").servers() == []
    assert isinstance(own, StageConfig)


def test_the_shortest_the_longest_and_one_between_are_compared(tmp_path: Path) -> None:
    samples = write_stored(tmp_path / "tokenize", [9, 1, 30, 4, 12, 2])
    found = stored_segments(samples, 3, 20)
    assert found["problem_id"].to_pylist() == ["p5", "p0", "p2"]
    assert found["length"].to_pylist() == [2, 9, 20]
    for ids, labels in zip(*(found[n].to_pylist() for n in ("input_ids", "labels")), strict=True):
        assert labels == [-100, *ids[1:]]
    with pytest.raises(StageError, match="has no stored response with two tokens"):
        stored_segments(write_stored(tmp_path / "one", [1]), 3, 20)


SHAPE = ModelShape(
    num_layers=1, hidden_size=8, num_heads=4, n_kv_heads=2, intermediate_size=8, vocab_size=9
)
"""Heads of two rows."""


def stored(values: Any) -> StoredTensor:
    data = np.asarray(values)
    name = {"float32": "F32", "uint8": "U8"}[str(data.dtype)]
    return StoredTensor(name, data.shape, data.nbytes, lambda: iter([data.tobytes()]))


ATTENTION = "model.layers.0.attention"
TENSORS = {
    f"{ATTENTION}.wq.bias": stored(np.arange(8, dtype=np.uint8)),
    f"{ATTENTION}.wk.bias": stored(np.arange(10, 14, dtype=np.uint8)),
    f"{ATTENTION}.wv.bias": stored(np.arange(20, 24, dtype=np.uint8)),
}


@pytest.mark.parametrize(
    ("name", "part", "expected"),
    [
        # Queries 0 1 | 2 3 in two groups; each head has two rows.
        ("query heads by place in their group", "wq", [0, 1, 4, 5, 2, 3, 6, 7]),
        ("query heads in reverse", "wq", [6, 7, 4, 5, 2, 3, 0, 1]),
        ("neighbouring query heads swapped", "wq", [2, 3, 0, 1, 6, 7, 4, 5]),
        ("query heads 0 and 3 swapped", "wq", [6, 7, 2, 3, 4, 5, 0, 1]),
        ("key and value heads in reverse: keys only", "wk", [12, 13, 10, 11]),
        ("keys and values exchanged", "wk", [20, 21, 22, 23]),
        # q0 q1 k0 v0 | q2 q3 k1 v1, read as four queries, two keys, two values.
        (
            "a joined matrix by groups, split as queries, keys, values",
            "wq",
            [0, 1, 2, 3, 10, 11, 20, 21],
        ),
        ("a joined matrix by groups, split as queries, keys, values", "wk", [4, 5, 6, 7]),
        # q0 q1 q2 q3 | k0 k1 v0 v1, read as two groups of two queries, a key and a value.
        (
            "a joined matrix of queries, keys, values, split by groups",
            "wq",
            [0, 1, 2, 3, 10, 11, 12, 13],
        ),
        ("a joined matrix of queries, keys, values, split by groups", "wk", [4, 5, 20, 21]),
        ("a joined matrix of queries, keys, values, split by groups", "wv", [6, 7, 22, 23]),
        ("no bias of queries, keys and values", "wv", [0, 0, 0, 0]),
    ],
)
def test_orders_of_heads(name: str, part: str, expected: list[int]) -> None:
    suspects = {one.name: one for group in groups(SHAPE, {}, {}) for one in group}
    found = suspects[name].weights(TENSORS)[f"{ATTENTION}.{part}.bias"]
    assert rows_of(found).ravel().tolist() == expected


def test_halves_and_pairs_undo_each_other() -> None:
    wide = ModelShape(**{**SHAPE.model_dump(), "hidden_size": 32})
    suspects = {one.name: one for group in groups(wide, {}, {}) for one in group}
    tensors = {f"{ATTENTION}.wq.bias": stored(np.arange(32, dtype=np.uint8))}
    there = suspects["pairs of the rotary embedding side by side, taken as two halves"]
    back = suspects["halves of the rotary embedding, taken as pairs side by side"]
    moved = there.weights(tensors)
    assert rows_of(moved[f"{ATTENTION}.wq.bias"]).ravel()[:8].tolist() == [0, 4, 1, 5, 2, 6, 3, 7]
    again = back.weights(moved)[f"{ATTENTION}.wq.bias"]
    assert rows_of(again).ravel().tolist() == list(range(32))


def test_rounded_values() -> None:
    value = stored(array(1.00390625, 65520.0))
    assert rows_of(rounded_to_bfloat16(value)).view("<f4").ravel().tolist() == [1.0, 65536.0]
    assert rows_of(rounded_to_float16(value)).view("<f4").ravel().tolist() == [
        1.00390625,
        float("inf"),
    ]
    whole = stored(np.arange(3, dtype=np.uint8))
    assert rounded_to_bfloat16(whole) is whole


def test_the_settings_of_the_served_folder_are_tried_first_and_none_twice() -> None:
    served = {"rope_theta": 12345.0, "rms_norm_eps": 1e-5}
    names = [[one.name for one in group] for group in groups(SHAPE, served, {})]
    settings = [group[0] for group in names if group and group[0].startswith("rotary base")]
    assert settings[0] == "rotary base 12345, where training has 1e+06"
    assert len({name for group in names for name in group}) == sum(map(len, names))
    # transformers 5 writes the base into rope_parameters.
    nested = [
        one
        for group in groups(SHAPE, {"rope_parameters": {"rope_theta": 5.0}}, {})
        for one in group
    ]
    assert any(one.settings.get("theta") == 5.0 for one in nested)


def test_the_settings_of_a_group_are_the_same() -> None:
    tied = ModelShape(**{**SHAPE.model_dump(), "tie_word_embeddings": True})
    other = {"model.tok_embeddings.embedding_weight": stored(array(1.0))}
    for group in groups(tied, {}, {"before": other}):
        assert all(one.settings == group[0].settings for one in group)


def test_a_message_without_a_cause_shows_the_nearest() -> None:
    found = Difference(3, 0.2, 0.3, 0.4, ())
    near = [Tried(Suspect(str(i)), Difference(3, i / 100, 1, 1, ()), False) for i in range(6)]
    text = failure("http://a/v1", found, 2, LIMITS["float32"], near, Path("logs/x.json"))
    assert "None of 6 suspects reproduces it. The nearest: 0 (0); 1 (0.01); 2" in text
    assert "5 (0.05)" not in text
    assert "suspects: false" in failure("a", found, 2, LIMITS["float32"], [], Path("x"))
    text = failure("a", found, 2, LIMITS["float32"], [], Path("x"), "a pass failed: no memory")
    assert "No suspect was tried (a pass failed: no memory)." in text and "suspects" not in text
    same = [Tried(AS_TRAINED, found, True), Tried(Suspect("b"), found, True)]
    text = failure("a", found, 2, LIMITS["float32"], same, Path("x"))
    assert "The cause: as trained." in text and "cannot tell it from: b (0.2)" in text
