"""The local scorer against transformers, and against scores that are known by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from reward_model import conversation, expected_score, write
from tokenizers import Tokenizer
from transformers import Qwen2Config, Qwen2ForSequenceClassification

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.local_sampler import scorer as module
from pcl_reasoner.local_sampler.scorer import LocalScorer
from pcl_reasoner.synthetic.base_model import write_model_folder

VOCABULARY = 160
TEXTS = [
    np.random.default_rng(length).integers(3, VOCABULARY, length).tolist()
    for length in (16, 9, 2, 1, 60)
]


def make_model(folder: Path, labels: int = 1) -> Any:
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        rope_theta=5000.0,
        eos_token_id=2,
        pad_token_id=0,
        num_labels=labels,
    )
    model = Qwen2ForSequenceClassification(config).eval()
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
    return model


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, LocalScorer]:
    folder = tmp_path_factory.mktemp("model")
    return make_model(folder), LocalScorer(folder, max_tokens=60)


def test_scores_are_those_of_transformers(pair: tuple[Any, LocalScorer]) -> None:
    model, scorer = pair
    with torch.no_grad():
        expected = [float(model(torch.tensor([text])).logits[0, 0]) for text in TEXTS]
    assert np.ptp(expected) > 0.3
    found = scorer.score(TEXTS)
    assert np.abs(found - expected).max() < 1e-4


def test_a_score_does_not_depend_on_the_other_texts(pair: tuple[Any, LocalScorer]) -> None:
    _, scorer = pair
    alone = [float(scorer.score([text])[0]) for text in TEXTS]
    # One text more than are scored together, in another order.
    many = [TEXTS[::-1][index % 5] for index in range(module.TEXTS + 1)]
    assert scorer.score(many).tolist() == [alone[::-1][index % 5] for index in range(len(many))]


def test_the_hand_made_model_scores_the_share_of_courteous_words(tmp_path: Path) -> None:
    folder = write(tmp_path)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    answers = ["Hi.", "Hello Ben, welcome!", "Please, dear Ben, thank you. Glad, thanks!", ""]
    texts = [
        tokenizer.encode(conversation("Greet Ben.", answer), add_special_tokens=False).ids
        for answer in answers
    ]
    expected = [expected_score(folder, "Greet Ben.", answer) for answer in answers]
    assert expected[0] == pytest.approx(-3.0) and len(set(expected)) == 3
    assert np.abs(LocalScorer(folder, 16384).score(texts) - expected).max() < 1e-5


def test_another_model_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_model_folder(tmp_path / "policy", ["a b"], vocab_size=300, hidden=64, layers=1, seed=1)
    with pytest.raises(StageError, match=r"architectures is \['Qwen2ForCausalLM'\].*reward model"):
        LocalScorer(tmp_path / "policy", 64)
    make_model(tmp_path / "two", labels=2)
    with pytest.raises(StageError, match="score.weight has 2 rows, a reward model has 1"):
        LocalScorer(tmp_path / "two", 64)
    config = tmp_path / "policy" / "config.json"
    value = json.loads(config.read_text())
    config.write_text(json.dumps({**value, "architectures": [module.CLASSIFIER]}))
    with pytest.raises(StageError, match="score.weight has 0 rows"):
        LocalScorer(tmp_path / "policy", 64)
    make_model(tmp_path / "one")
    monkeypatch.setattr(module, "ATTENTION_BYTES", 4 * 4 * 64**2 - 1)
    with pytest.raises(StageError, match="text of 64 tokens.*engine: server"):
        LocalScorer(tmp_path / "one", 60)
