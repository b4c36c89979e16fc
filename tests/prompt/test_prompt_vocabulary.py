"""vocab.json and merges.txt give the ids of tokenizer.json and of transformers' slow tokenizer."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from transformers import Qwen2Tokenizer, Qwen2TokenizerFast

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.prompt.template import ChatTemplate, prompt_messages
from pcl_reasoner.prompt.vocabulary import QWEN2_5_TOKENS, read_vocabulary
from pcl_reasoner.synthetic.base_model import CHAT_TEMPLATE, TAGS, train_tokenizer

TEXTS = [
    "You are a helpful assistant. First think about the question between <think> and </think>.",
    "Let $x = \\frac{1}{2}$; then we've 12 345 ways, don't we? So \\boxed{12}.\n\nWait\tno.  ",
    "设 n 为正整数，求 n²+1 的最小素因子。 Ответ: ≤ 7 · ½ → 3",
    "e\u0301 is one letter, and so is \u00e9; \U0001d465\u0338 is not equal \u2260 \u0338=.",
]
SYSTEM = "Put the answer between <answer> and </answer>."
RESPONSE = "<think>\n6·7 = 42,\r\nso it's 42.</think><answer>\\boxed{42}</answer><|im_end|>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All the files of a Qwen2 tokenizer: for the fast one, the slow one, and MindFormers' YAML."""
    folder = tmp_path_factory.mktemp("tokenizer")
    tokenizer = train_tokenizer(TEXTS, 400)
    tokenizer.save(str(folder / "tokenizer.json"))
    write_parts(folder, json.loads((folder / "tokenizer.json").read_text()))
    return folder


def write_parts(folder: Path, whole: dict[str, Any]) -> None:
    """vocab.json, merges.txt and the added tokens, out of tokenizer.json."""
    merges = [" ".join(pair) for pair in whole["model"]["merges"]]
    (folder / "vocab.json").write_text(json.dumps(whole["model"]["vocab"]))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
    added = {str(token.pop("id")): token for token in whole["added_tokens"]}
    config = {
        "tokenizer_class": "Qwen2Tokenizer",
        "added_tokens_decoder": added,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def conversations() -> list[str]:
    """Our template's text, of every kind of turn, and random strings in it."""
    draw = random.Random(0)
    alphabet = "abcXYZ0129 \t\n\r.,;:!?'\"\\{}$^_<>|/=+-·²é\u0301数学Ω🙂\u3000ſ"
    words = ["'s", "'RE", "<think>", "</answer>", "<|im_start|>", "  ", "\n\n", "\\boxed{"]
    drawn = ["".join(draw.choices([*alphabet, *words], k=60)) for _ in range(300)]
    template = ChatTemplate(CHAT_TEMPLATE)
    return [
        template.render(prompt_messages(text, system, " Box it."), add_generation_prompt=True)
        + RESPONSE
        for text in [*TEXTS, *drawn]
        for system in (None, SYSTEM)
    ]


def test_slow_fast_and_ours_give_the_same_ids(folder: Path) -> None:
    slow = Qwen2Tokenizer.from_pretrained(folder)
    assert not slow.is_fast
    fast = Qwen2TokenizerFast.from_pretrained(folder)
    whole = Tokenizer.from_file(str(folder / "tokenizer.json"))
    parts = read_vocabulary(folder / "vocab.json", folder / "merges.txt")
    for text in conversations():
        expected = whole.encode(text, add_special_tokens=False).ids
        assert parts.encode(text, add_special_tokens=False).ids == expected
        assert fast.encode(text, add_special_tokens=False) == expected
        assert slow.encode(text, add_special_tokens=False) == expected, text
    # The tags are single tokens, so the equality above is not one of letters alone.
    assert len(parts.encode("".join(TAGS), add_special_tokens=False).ids) == len(TAGS)


def test_without_a_config_qwens_own_tokens_follow_the_vocabulary(tmp_path: Path) -> None:
    vocabulary = {chr(97 + number): number for number in range(26)}
    (tmp_path / "vocab.json").write_text(json.dumps({**vocabulary, "ab": 26}))
    (tmp_path / "merges.txt").write_text("a b\n")
    tokenizer = read_vocabulary(tmp_path / "vocab.json", tmp_path / "merges.txt")
    # Qwen2.5's vocabulary has 151 643: <|im_start|> is 151 644 there, <|file_sep|> 151 664.
    assert tokenizer.encode("<|im_start|>abc<|file_sep|>").ids == [28, 26, 2, 27 + 21]
    assert len(QWEN2_5_TOKENS) == 22


def test_ids_that_contradict_each_other_are_an_error(folder: Path, tmp_path: Path) -> None:
    for name in ("vocab.json", "merges.txt"):
        (tmp_path / name).write_text((folder / name).read_text())
    config = json.loads((folder / "tokenizer_config.json").read_text())
    listed = config["added_tokens_decoder"]
    listed["9999"] = listed.pop(max(listed, key=int))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(
        StageError, match="</answer> gets id .*, expected 9999 as in tokenizer_config.json"
    ):
        read_vocabulary(tmp_path / "vocab.json", tmp_path / "merges.txt")


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "vocab.json").write_text("{")
    with pytest.raises(StageError, match=r"vocab\.json and .*merges\.txt cannot be read"):
        read_vocabulary(tmp_path / "vocab.json", tmp_path / "merges.txt")
