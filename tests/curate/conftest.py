"""What the curation tests have in common: a context, and folders to write to."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from curate_helpers import Folder, Rows
from tokenizers import Tokenizer, models, pre_tokenizers

from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.synthetic.base_model import train_tokenizer


@pytest.fixture
def context(tmp_path: Path) -> StageContext:
    return StageContext(name="curate", quarantined=tmp_path / "quarantined.jsonl")


@pytest.fixture
def quarantined(context: StageContext) -> Callable[[], Rows]:
    def lines() -> Rows:
        text = context.quarantined.read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()]

    return lines


@pytest.fixture
def folder(tmp_path: Path) -> Callable[[str], Path]:
    def make(name: str) -> Path:
        path = tmp_path / name
        path.mkdir(parents=True)
        return path

    return make


@pytest.fixture
def tokenizer(folder: Folder) -> Path:
    """A word is a token; its file cuts at 4 and pads to 4, which a count must not do."""
    words = Tokenizer(models.WordLevel({"w": 0, "?": 1}, unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.enable_truncation(4)
    words.enable_padding(length=4)
    path = folder("tokenizer")
    words.save(str(path / "tokenizer.json"))
    return path


@pytest.fixture
def byte_tokenizer(folder: Folder) -> Path:
    """Byte-level BPE of Qwen2's kind: " w" is one token, other letters are mostly bytes."""
    trained = train_tokenizer(["w w w w w w w w", "so it is 42."] * 9, vocab_size=300)
    trained.enable_truncation(4)
    trained.enable_padding(length=4)
    path = folder("byte_tokenizer")
    trained.save(str(path / "tokenizer.json"))
    return path
