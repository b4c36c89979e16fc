"""The scorer: log-probs that are counted by hand, and a model that has just these."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModelForCausalLM

from pcl_reasoner.synthetic.bigrams import log_probs_of, write_scorer

WORDS = ["a", "b", "c", "d"]
TEXTS = ["a b a b", "a b a c", "d"]
"""After a: b three times and c once. After b: a twice. After c and d: nothing."""
SIZE = 64
"""Four words, padded to a multiple of 64."""


def likely(count: int, total: int) -> float:
    """Log-prob of a word that follows ``count`` of ``total`` times; 0.01 is added for each word."""
    return math.log((count + 0.01) / (total + 0.64))


def tokenizer() -> Tokenizer:
    found = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="d"))
    found.pre_tokenizer = pre_tokenizers.Whitespace()
    return found


def test_counts_are_smoothed() -> None:
    found = log_probs_of(tokenizer(), TEXTS, SIZE)
    assert found.shape == (SIZE, SIZE)
    assert found[0, :4] == pytest.approx([likely(n, 4) for n in (0, 3, 1, 0)])
    assert found[1, :4] == pytest.approx([likely(n, 2) for n in (2, 0, 0, 0)])
    # Nothing follows these: every word is equally likely.
    assert found[2:4] == pytest.approx(-math.log(SIZE))
    assert np.exp(found).sum(axis=1) == pytest.approx(1.0)


def test_the_model_has_these_perplexities(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    tokenizer().save(str(model / "tokenizer.json"))
    for name in ("tokenizer_config.json", "generation_config.json"):
        (model / name).write_text("{}")
    write_scorer(tmp_path / "scorer", model, TEXTS)
    scorer = AutoModelForCausalLM.from_pretrained(tmp_path / "scorer").eval()
    prompt, response = [3, 0], [1, 0, 2, 3]
    with torch.no_grad():
        found = scorer(torch.tensor([prompt + response])).logits[0].double().log_softmax(-1)
    drawn = [found[place + 1, token].item() for place, token in enumerate(response)]
    by_hand = [likely(3, 4), likely(2, 2), likely(1, 4), -math.log(SIZE)]
    assert drawn == pytest.approx(by_hand, abs=1e-5)
    # (4.64/3.01 · 2.64/2.01 · 4.64/1.01 · 64)^(1/4): the response, without its prompt
    assert math.exp(-sum(drawn) / 4) == pytest.approx(4.9395, abs=1e-3)
