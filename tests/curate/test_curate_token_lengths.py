"""Counts by either library, what bytes say of them, and how the libraries are held together."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from pcl_reasoner.curate import token_lengths
from pcl_reasoner.curate.token_lengths import (
    PROBES,
    byte_form,
    count_bytes,
    count_fast,
    count_tokens,
    difference,
    is_checked,
    open_fast,
    open_tokenizer,
)


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


def test_both_libraries_count_the_same(
    byte_tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By hand: w and each " w" are a token, é composed is two bytes, a tag is one token.

    The file cuts at 4 and pads to 4; neither library may.
    """
    pytest.importorskip("fastokens", reason="fastokens is an extra")
    file = byte_tokenizer / "tokenizer.json"
    tokenizer, fast = open_tokenizer(file), open_fast(file)
    texts = ["w w w w w w", "", "e\u0301é", "<think>", "\u0958"]
    for at_once in (1 << 20, 3):
        monkeypatch.setattr(token_lengths, "CHARACTERS_AT_ONCE", at_once)
        assert count_tokens(tokenizer, texts) == [6, 0, 4, 1, 6]
        assert count_fast(fast, texts) == [6, 0, 4, 1, 6]
    assert difference(fast, tokenizer, [*texts, *PROBES]) is None


def test_a_kind_that_fastokens_refuses(tokenizer: Path) -> None:
    pytest.importorskip("fastokens", reason="fastokens is an extra")
    with pytest.raises(ValueError, match=r"WordLevel|Whitespace|unsupported|unknown"):
        open_fast(tokenizer / "tokenizer.json")


def test_a_difference_is_said(byte_tokenizer: Path, tokenizer: Path) -> None:
    one = open_tokenizer(byte_tokenizer / "tokenizer.json")
    words = open_tokenizer(tokenizer / "tokenizer.json")
    assert difference(words, one, ["", "qz"]) == (
        "a text of 2 characters that begins with 'qz' has 1 tokens, expected 2"
    )


def test_one_text_in_a_thousand_is_checked() -> None:
    """Those whose CRC-32 is divisible by 1000, wherever they stand."""
    texts = [f"text {i} é" for i in range(20_000)]
    chosen = [text for text in texts if is_checked(text)]
    assert chosen == [text for text in texts if zlib.crc32(text.encode()) % 1000 == 0]
    assert 5 < len(chosen) < 40


def test_tokens_are_no_more_than_bytes_in_the_right_form(byte_tokenizer: Path) -> None:
    """U+0958 is 3 bytes, and 6 after NFC; e with an accent is 3, and 2 after NFC."""
    texts = ["abc", "", "\u0958", "e\u0301", "👍"]
    assert count_bytes(pa.array(texts), "raw").to_pylist() == [3, 0, 3, 3, 4]
    assert count_bytes(pa.array(texts), "NFC").to_pylist() == [3, 0, 6, 2, 4]
    assert count_bytes(pa.array(texts)[1:3], "NFC").to_pylist() == [0, 6]
    tokenizer = open_tokenizer(byte_tokenizer / "tokenizer.json")
    sizes = count_bytes(pa.array(PROBES), "NFC").to_pylist()
    assert all(t <= b for t, b in zip(count_tokens(tokenizer, PROBES), sizes, strict=True))


@pytest.mark.parametrize(
    ("changes", "form"),
    [
        ({}, "NFC"),
        ({"normalizer": None}, "raw"),
        ({"normalizer": {"type": "NFKC"}}, None),
        ({"normalizer": {"type": "Prepend", "prepend": "▁"}}, None),
        ({"pre_tokenizer": None}, None),
        ({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False}}, "NFC"),
        ({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True}}, None),
        ({"pre_tokenizer": {"type": "Metaspace"}}, None),
        ({"model": {"type": "WordLevel"}}, None),
        ({"model": {"type": "BPE", "dropout": 0.1}}, None),
        ({"model": {"type": "BPE", "end_of_word_suffix": "</w>"}}, None),
    ],
)
def test_of_which_tokenizers_bytes_are_a_bound(
    byte_tokenizer: Path, changes: dict[str, Any], form: str | None
) -> None:
    file = byte_tokenizer / "tokenizer.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    assert byte_form(file) == form
