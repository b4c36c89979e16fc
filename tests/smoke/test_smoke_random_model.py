"""The stage random_model: a complete Qwen2 of a given shape with random weights."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.smoke.random_model import RandomModelConfig, random_model
from pcl_reasoner.synthetic.base_model import write_model_folder
from pcl_reasoner.weights.float32 import read_weights
from pcl_reasoner.weights.model_config import ModelShape, read_shape
from pcl_reasoner.weights.names import expected_shapes

SHAPE = ModelShape(
    num_layers=2, hidden_size=64, num_heads=4, n_kv_heads=2, intermediate_size=96, vocab_size=700,
    theta=5000.0, max_position_embedding=300, eos_token_id=2, pad_token_id=0,
)  # fmt: skip
TEXTS = ["Ada has three apples. Monday gets two 3+2=5", "Ben loses one. Tuesday 5-1=4"]


@pytest.fixture(scope="module")
def like(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tokenizer of 300 tokens and some."""
    folder = tmp_path_factory.mktemp("like") / "model"
    write_model_folder(folder, TEXTS, 310, 64, 2, 0)
    return folder


def made(like: Path, folder: Path, **settings: object) -> Path:
    folder.mkdir()
    config = RandomModelConfig.model_validate({"model": SHAPE, "seed": 3, **settings})
    counts = random_model(
        config,
        {"tokenizer": like},
        folder,
        StageContext("random_model", folder / "quarantined.jsonl"),
    )
    assert counts.read == counts.kept > 0
    return folder


def test_the_folder_has_the_shape_and_every_tensor(like: Path, tmp_path: Path) -> None:
    folder = made(like, tmp_path / "model")
    assert read_shape(folder) == SHAPE
    shapes = {name: one.shape for name, one in read_weights(folder).items()}
    assert shapes == expected_shapes(SHAPE)
    tied = made(
        like, tmp_path / "tied", model=SHAPE.model_copy(update={"tie_word_embeddings": True})
    )
    assert expected_shapes(SHAPE).keys() - read_weights(tied).keys() == {"lm_head.weight"}


def test_matrices_are_normal_and_norms_are_one(like: Path, tmp_path: Path) -> None:
    """700 x 64 numbers: the error of a standard deviation of 0.02 is 0.02 / √(2 · 44 800)."""
    weights = read_weights(made(like, tmp_path / "model"))
    embedding = weights["model.embed_tokens.weight"]
    assert abs(embedding.std() - 0.02) < 5 * 0.02 / np.sqrt(2 * embedding.size)
    assert abs(embedding.mean()) < 5 * 0.02 / np.sqrt(embedding.size)
    assert (weights["model.norm.weight"] == 1).all()
    assert (weights["model.layers.0.self_attn.q_proj.bias"] == 0).all()
    first, second = (weights[f"model.layers.{n}.mlp.up_proj.weight"] for n in (0, 1))
    assert abs(np.corrcoef(first.ravel(), second.ravel())[0, 1]) < 0.1


def test_bfloat16_is_float32_rounded_and_the_seed_decides(like: Path, tmp_path: Path) -> None:
    rounded = read_weights(made(like, tmp_path / "rounded"))
    exact = load_file(made(like, tmp_path / "exact", dtype="float32") / "model.safetensors")
    other = read_weights(made(like, tmp_path / "other", seed=4))
    name = "lm_head.weight"
    assert exact[name].dtype == np.float32
    # 8 bits of significand: half of 2⁻⁷, relative to the power of two below.
    assert (np.abs(rounded[name] - exact[name]) <= np.abs(exact[name]) * 2.0**-8).all()
    assert (rounded[name] != exact[name]).any()
    assert not np.array_equal(rounded[name], other[name])
    again = read_weights(made(like, tmp_path / "again"))
    assert all(np.array_equal(rounded[name], again[name]) for name in rounded)


def test_every_token_of_the_model_can_be_decoded(like: Path, tmp_path: Path) -> None:
    folder = made(like, tmp_path / "model")
    before = Tokenizer.from_file(str(like / "tokenizer.json"))
    after = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert after.get_vocab_size() == SHAPE.vocab_size
    assert after.decode([699]) == "filler699."
    for text in (
        *TEXTS,
        "<think>1</think><|im_end|>",
        "filler699.",
    ):  # no text is encoded with fillers
        assert after.encode(text).ids == before.encode(text).ids
    config = json.loads((folder / "tokenizer_config.json").read_text())
    assert "chat_template" in config


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused(like: Path, tmp_path: Path) -> None:
    small = SHAPE.model_copy(update={"vocab_size": 256})
    with pytest.raises(StageError, match=r"tokens up to \d+, and the model has 256\. Raise random"):
        made(like, tmp_path / "model", model=small)
