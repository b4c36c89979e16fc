"""Counting goes in groups of bounded text, and the groups change nothing."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from pcl_reasoner.curate import token_lengths


def test_counts_by_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = Tokenizer(models.WordLevel({"w": 0}, unk_token="w"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    texts = ["w w w", "", "w" * 50, "w w", "w w w w"]
    assert token_lengths.count_tokens(tokenizer, texts) == [3, 0, 1, 2, 4]
    monkeypatch.setattr(token_lengths, "CHARACTERS_AT_ONCE", 10)
    groups = list(token_lengths._groups(texts))
    assert groups == [["w w w", ""], ["w" * 50], ["w w", "w w w w"]]
    assert token_lengths.count_tokens(tokenizer, texts) == [3, 0, 1, 2, 4]
    assert token_lengths.count_tokens(tokenizer, []) == []
