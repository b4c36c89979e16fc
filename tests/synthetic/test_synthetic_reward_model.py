"""The hand-made reward model: its scores by transformers, by counting, and in exact arithmetic."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from reward_model import conversation, expected_score
from tokenizers import Tokenizer
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.synthetic.reward_model import (
    COURTEOUS,
    OFFSET,
    SLOPE,
    exact_score,
    forms_of,
    tokens_of,
    write_reward_model,
)

ANSWERS = ["Hi.", "Hello Ben, welcome!", "Please, dear Ben, thank you. Glad, thanks!", ""]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("model")
    write_reward_model(found, ["Greet Ben.", "Good day, Ben."] * 4)
    return found


def test_transformers_scores_the_share_of_courteous_words(folder: Path) -> None:
    model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    assert model.config.num_labels == 1
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for answer in ANSWERS:
        turns = [("user", "Greet Ben."), ("assistant", answer)]
        messages = [{"role": role, "content": text} for role, text in turns]
        ids = tokenizer.apply_chat_template(messages, return_tensors="pt")
        with torch.no_grad():
            found = float(model(ids).logits[0, 0])
        assert found == pytest.approx(expected_score(folder, "Greet Ben.", answer), abs=1e-5)


def test_scores_that_are_counted_by_hand(folder: Path) -> None:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    text = conversation("Greet Ben.", "Hello Ben, welcome!")
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    courteous = tokens_of(tokenizer)
    assert [tokenizer.decode([one]) for one in ids if one in courteous] == ["Hello", " welcome"]
    share = 2 / len(ids)
    assert expected_score(folder, "Greet Ben.", "Hello Ben, welcome!") == pytest.approx(
        SLOPE * share + OFFSET, rel=1e-6
    )
    # All words courteous: (40 · 1 − 3) / sqrt(1 + 1 / 1000²), up to RMSNorm's epsilon.
    assert exact_score(1.0) == pytest.approx(37 / (1 + 1e-6) ** 0.5, rel=1e-9)
    assert exact_score(1.0) < 37
    assert exact_score(0.0) == pytest.approx(-3.0)
    assert exact_score(0.5, slope=8.0, offset=1.0) == pytest.approx(5.0, rel=1e-6)


def test_the_words_have_four_forms_of_one_token_each(folder: Path) -> None:
    assert forms_of(["dear"]) == ["dear", "Dear", " dear", " Dear"]
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert len(set(tokens_of(tokenizer))) == 4 * len(COURTEOUS)


def test_a_word_of_several_tokens_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StageError, match="into several tokens.*Raise vocab_size"):
        write_reward_model(tmp_path, ["Greet Ben."], vocab_size=280)
    assert not (tmp_path / "config.json").exists()


def test_the_config_is_that_of_a_classifier_with_one_label(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["Qwen2ForSequenceClassification"]
    assert config["id2label"] == {"0": "reward"}
