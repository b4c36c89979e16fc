from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import Qwen2Config, Qwen2ForCausalLM

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.inference.settings import SamplingConfig
from pcl_reasoner.local_sampler.sampler import Layout, LocalSampler, Row
from pcl_reasoner.weights.float32 import read_weights
from pcl_reasoner.weights.model_config import end_tokens

VOCABULARY = 160
PROMPTS = [
    np.random.default_rng(length).integers(3, VOCABULARY, length).tolist() for length in (16, 9, 2)
]
LAYOUT = Layout(prompts=3, prompt_slots=16, rows=8, slots=16 + 24)
GREEDY = SamplingConfig(temperature=0.0, top_k=0, top_p=1.0)
PLAIN = SamplingConfig(temperature=1.0, top_k=0, top_p=1.0)
WARM = SamplingConfig(temperature=0.9, top_k=40, top_p=0.95)


def make_model(folder: Path, tied: bool, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        rope_theta=5000.0,
        tie_word_embeddings=tied,
        eos_token_id=2,
        bos_token_id=None,
        pad_token_id=0,
    )
    model = Qwen2ForCausalLM(config).eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            if name.endswith("bias"):
                value.normal_(0, 0.5)
            elif name.endswith("norm.weight"):
                value.uniform_(0.5, 1.5)
            else:
                # Far from uniform, attention most, so that a wrong mask or position shows.
                value.mul_(20 if "self_attn" in name else 6)
    model.save_pretrained(folder)
    (folder / "generation_config.json").write_text('{"eos_token_id": [2]}')
    return model


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, LocalSampler]:
    folder = tmp_path_factory.mktemp("model")
    model = make_model(folder, tied=False)
    sampler = LocalSampler(folder)
    sampler.prepare(LAYOUT)
    return model, sampler


def reference_greedy(model: Any, prompt: list[int], tokens: int) -> list[int]:
    ids = list(prompt)
    with torch.no_grad():
        for _ in range(tokens):
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
            if ids[-1] == 2:
                break
    return ids[len(prompt) :]


def test_prefill_logits_are_those_of_transformers(pair: tuple[Any, LocalSampler]) -> None:
    model, sampler = pair
    logits, _ = sampler.read(PROMPTS, [0, 1, 2, 0, 1, 2, 0, 1])
    for row, prompt in enumerate(PROMPTS):
        with torch.no_grad():
            expected = model(torch.tensor([prompt])).logits[0, -1].numpy()
        assert np.abs(expected).max() > 1
        assert np.abs(logits[row] - expected).max() < 1e-4


def test_greedy_is_transformers_token_for_token(pair: tuple[Any, LocalSampler]) -> None:
    model, sampler = pair
    rows = [Row(index % 3, seed=index) for index in range(8)]
    drawn = sampler.sample(PROMPTS, rows, [24] * 8, GREEDY)
    references = [reference_greedy(model, prompt, 24) for prompt in PROMPTS]
    assert len(set(sum(references, []))) > 9
    for row, found in zip(rows, drawn, strict=True):
        expected = references[row.prompt]
        assert found.token_ids == expected
        assert found.finish_reason == ("stop" if expected[-1] == 2 else "length")


def test_what_shares_the_batch_does_not_matter(pair: tuple[Any, LocalSampler]) -> None:
    _, sampler = pair
    rows = [Row(index % 3, seed=100 + index) for index in range(8)]
    together = sampler.sample(PROMPTS, rows, [24] * 8, WARM)
    alone = sampler.sample([PROMPTS[2]], [Row(0, seed=105)], [24], WARM)
    assert alone == [together[5]]
    turned = sampler.sample(
        PROMPTS[::-1], [Row(2 - r.prompt, r.seed) for r in rows], [24] * 8, WARM
    )
    assert turned == together
    assert len({tuple(one.token_ids) for one in together}) == 8


def test_ends_and_limits(pair: tuple[Any, LocalSampler]) -> None:
    _, sampler = pair
    rows = [Row(index % 3, seed=200 + index) for index in range(8)]
    free = sampler.sample(PROMPTS, rows, [24] * 8, WARM)
    # End at the token that row 3 drew fourth; a row of limit 5 is cut, others go on.
    end = free[3].token_ids[3]
    before, sampler.ends = sampler.ends, [2, end]
    try:
        found = sampler.sample(PROMPTS, rows, [24, 24, 24, 24, 5, 24, 24, 24], WARM)
    finally:
        sampler.ends = before
    for index, (one, whole) in enumerate(zip(found, free, strict=True)):
        limit = 5 if index == 4 else 24
        ids = whole.token_ids[:limit]
        cut = ids.index(end) + 1 if end in ids else len(ids)
        assert one.token_ids == ids[:cut]
        assert one.finish_reason == ("stop" if ids[cut - 1] in (2, end) else "length")
    assert found[3].finish_reason == "stop"


def test_a_large_repetition_penalty_never_repeats(pair: tuple[Any, LocalSampler]) -> None:
    _, sampler = pair
    penalised = GREEDY.model_copy(update={"repetition_penalty": 1e9})
    drawn = sampler.sample([PROMPTS[2]], [Row(0, seed=1)], [24], penalised)[0].token_ids
    ids = [token for token in PROMPTS[2] + drawn if token != 2]
    assert len(set(ids)) == len(ids)


def test_tied_embeddings_and_half_precision_weights(tmp_path: Path) -> None:
    model = make_model(tmp_path, tied=True).to(torch.bfloat16)
    weights = {
        name: value for name, value in model.state_dict().items() if name != "lm_head.weight"
    }
    save_file(
        {name: value.clone() for name, value in weights.items()},
        tmp_path / "model.safetensors",
        {"format": "pt"},
    )
    read = read_weights(tmp_path)
    for name, value in load_file(tmp_path / "model.safetensors").items():
        assert value.dtype == torch.bfloat16
        assert read[name].tolist() == value.float().tolist()
    sampler = LocalSampler(tmp_path)
    sampler.prepare(Layout(prompts=1, prompt_slots=16, rows=1, slots=17))
    logits, _ = sampler.read([PROMPTS[1]], [0])
    with torch.no_grad():
        # Loaded anew: converting back would keep a rotary table in half precision.
        model = Qwen2ForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
        expected = model(torch.tensor([PROMPTS[1]])).logits[0, -1].numpy()
    assert np.abs(logits[0] - expected).max() < 1e-4


def log_probs_by_transformers(model: Any, prompt: list[int], drawn: list[int]) -> list[float]:
    """In float64: what the logits of float32 are rounded from."""
    with torch.no_grad():
        logits = model(torch.tensor([prompt + drawn])).logits[0].double()
    found = logits.log_softmax(-1)[len(prompt) - 1 : -1]
    return found[torch.arange(len(drawn)), torch.tensor(drawn)].tolist()


@pytest.mark.parametrize("settings", [PLAIN, WARM])
def test_log_probs_of_drawn_tokens_are_transformers_own(
    pair: tuple[Any, LocalSampler], tmp_path: Path, settings: SamplingConfig
) -> None:
    """Those of the policy, also where temperature and filters change what is drawn."""
    _, sampler = pair
    rows = [Row(index % 3, seed=300 + index) for index in range(8)]
    limits = [24, 24, 5, 24, 1, 24, 24, 24]
    drawn = sampler.sample(PROMPTS, rows, limits, settings, log_probs=True)
    make_model(tmp_path, tied=False)
    exact = Qwen2ForCausalLM.from_pretrained(tmp_path, dtype=torch.float64).eval()
    spread = []
    for row, one in zip(rows, drawn, strict=True):
        expected = log_probs_by_transformers(exact, PROMPTS[row.prompt], one.token_ids)
        assert len(one.log_probs) == len(one.token_ids)
        assert one.log_probs == pytest.approx(expected, rel=1e-5, abs=1e-5)
        spread += expected
    assert max(spread) - min(spread) > 2
    # Asking for them changes no token.
    plain = sampler.sample(PROMPTS, rows, limits, settings)
    assert [one.token_ids for one in plain] == [one.token_ids for one in drawn]
    assert all(one.log_probs == [] for one in plain)


def all_drawn(sampler: LocalSampler) -> Any:
    rows = [Row(index % 3, seed=index) for index in range(8)]
    return sampler.sample(PROMPTS, rows, [24] * 8, PLAIN, log_probs=True)


@pytest.mark.parametrize("tied", [False, True])
def test_loaded_weights_are_those_of_a_fresh_sampler(
    pair: tuple[Any, LocalSampler], tmp_path: Path, tied: bool
) -> None:
    """Token by token and log-prob by log-prob, there and back."""
    for seed in (0, 1):
        make_model(tmp_path / f"{seed}", tied, seed)
    sampler = LocalSampler(tmp_path / "0") if tied else pair[1]
    fresh = LocalSampler(tmp_path / "1")
    for one in (sampler, fresh):
        one.prepare(LAYOUT)
    first, second = all_drawn(sampler), all_drawn(fresh)
    assert first != second
    sampler.load(read_weights(tmp_path / "1"))
    assert all_drawn(sampler) == second
    sampler.load(read_weights(tmp_path / "0"))
    assert all_drawn(sampler) == first


def test_weights_of_another_shape_are_refused(tmp_path: Path) -> None:
    make_model(tmp_path / "model", tied=False)
    sampler = LocalSampler(tmp_path / "model")
    weights = read_weights(tmp_path / "model")
    wide = {**weights, "lm_head.weight": np.zeros((VOCABULARY + 16, 64), np.float32)}
    before = {one.name: one.asnumpy().copy() for one in sampler.model.get_parameters()}
    with pytest.raises(StageError, match=r"head has the shape \(64, 176\).* has \(64, 160\)"):
        sampler.load(wide | {"model.embed_tokens.weight": np.zeros((VOCABULARY, 64), np.float32)})
    after = {one.name: one.asnumpy() for one in sampler.model.get_parameters()}
    assert all((before[name] == after[name]).all() for name in before)


def test_end_tokens_come_from_either_file(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"eos_token_id": 7}')
    assert end_tokens(tmp_path) == [7]
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [5, 6]}')
    assert end_tokens(tmp_path) == [5, 6]
    (tmp_path / "generation_config.json").write_text("{}")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(StageError, match="eos_token_id"):
        end_tokens(tmp_path)


def test_other_models_and_caches_too_large_are_refused(
    tmp_path: Path, pair: tuple[Any, LocalSampler]
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    with pytest.raises(StageError, match="'llama'.*engine: server"):
        LocalSampler(tmp_path)
    with pytest.raises(StageError, match="GiB"):
        pair[1].prepare(Layout(prompts=1, prompt_slots=16, rows=400, slots=131072))
