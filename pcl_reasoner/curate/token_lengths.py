"""Counts the tokens of texts with ``tokenizers`` or with the much faster ``fastokens``.

A sample record: ``"<think>6·7 = 42</think>"`` has 12 tokens, and a problem whose three texts have
10, 12 and 14 tokens has a mean of 12.0.

The counts of ``tokenizers`` are the reference. ``fastokens`` is checked against them: first on
the texts in PROBES, then on one text in 1 000, chosen by a hash of the text.
"""

import json
import unicodedata
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tokenizers import Tokenizer

from pcl_reasoner.core.errors import StageError

CHARACTERS_AT_ONCE = 1 << 20
"""Maximum characters encoded in one call; an encoding takes about 100 bytes per token."""
CHECKED_OF = 1000
"""One text in this many is counted by both libraries."""
PROBES = (
    "",
    " ",
    "Let $f(x)=\\frac{\\sqrt{1-x^2}}{\\log_{10} 3.14159}$; then\n\n  \\boxed{-1234567890}.\r\n\t",
    "<think>So 6·7 = 42, isn't it?  WE'LL see…</think>\n<answer>42</answer><|im_end|>",
    "Cafe\u0301 naïve Ångström ﬁ ½ ²³ ∑∫≤≥≠∞ αβγ → ⟨x, y⟩",
    "求解方程组，已知三角形的面积。数値は１２３です。한국어 문제",
    "👩‍🏫 says 👍🏽: 1️⃣+1️⃣=2️⃣ 🇨🇳",
    "\u0000\u200b\ufeff\u00a0\u3000\u0e01\u0e33\u0958\u1e9b\u0323",
)
"""Texts on which tokenizers often differ."""

Form = Literal["NFC", "raw"]


def open_tokenizer(file: Path) -> Tokenizer:
    """Open a tokenizer.json with ``tokenizers``, without truncation and padding.

    Raises:
        StageError: The file does not exist or cannot be read.
    """
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # tokenizers raises a bare Exception
        raise StageError(f"{file}: {error}. Give a Hugging Face model folder.") from error
    # A truncated or padded text would be counted with the wrong length.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def open_fast(file: Path) -> Any:
    """Open a tokenizer.json with ``fastokens``, without truncation and padding.

    Raises:
        ImportError: fastokens is not installed.
        ValueError: fastokens does not support this kind of tokenizer.
    """
    tokenizer = import_module("fastokens").Tokenizer.from_file(str(file))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


@contextmanager
def panics_as_errors() -> Iterator[None]:
    """Turn a panic of a Rust library into a RuntimeError; in Python a panic is not an Exception.

    Raises:
        RuntimeError: The library panicked.
    """
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise RuntimeError(f"panicked: {error}") from error


def count_tokens(tokenizer: Tokenizer, texts: Sequence[str]) -> list[int]:
    """Return each text's number of tokens; no special tokens are added.

    Args:
        tokenizer: A tokenizer without truncation and padding.
        texts: Any number of texts.
    """
    lengths: list[int] = []
    for group in _groups(texts):
        lengths += map(len, tokenizer.encode_batch_fast(group, add_special_tokens=False))
    return lengths


def count_fast(fast: Any, texts: Sequence[str]) -> list[int]:
    """Return each text's number of tokens like `count_tokens`, but count with ``fastokens``.

    Raises:
        Exception: fastokens cannot encode a text, e.g. at a limit of its regular expressions.
    """
    lengths: list[int] = []
    for group in _groups(texts):
        _, offsets = fast.encode_batch_flat(group, add_special_tokens=False)
        lengths += np.diff(np.frombuffer(offsets, np.uint64)).tolist()
    return lengths


def _groups(texts: Sequence[str]) -> Iterator[list[str]]:
    group: list[str] = []
    characters = 0
    for text in texts:
        if group and characters + len(text) > CHARACTERS_AT_ONCE:
            yield group
            group, characters = [], 0
        group.append(text)
        characters += len(text)
    if group:
        yield group


def is_checked(text: str) -> bool:
    """Return True for one text in 1 000 (CHECKED_OF), chosen by the text's hash alone."""
    return zlib.crc32(text.encode("utf-8")) % CHECKED_OF == 0


def difference(fast: Any, tokenizer: Tokenizer, texts: Sequence[str]) -> str | None:
    """Describe the first text for which the two tokenizers differ; None if there is none.

    Args:
        fast: A tokenizer in the library ``fastokens``.
        tokenizer: The same tokenizer in the library ``tokenizers``, which is the reference.
        texts: Texts to encode with both.
    """
    for text in texts:
        expected = tokenizer.encode(text, add_special_tokens=False).ids
        found = fast.encode(text, add_special_tokens=False).ids
        if found != expected:
            return (
                f"a text of {len(text)} characters that begins with {text[:40]!r} has "
                f"{len(found)} tokens, expected {len(expected)}"
            )
    return None


def byte_form(file: Path) -> Form | None:
    """Return the form (NFC or raw) in which a text has at least as many bytes as tokens, or None.

    Tokens of a byte-level BPE are pieces of the text's bytes, after NFC if the tokenizer
    normalises. For other kinds of tokenizer (which add a space, split compatibility characters …)
    the result is None.
    """
    config = json.loads(file.read_text(encoding="utf-8"))
    model, normaliser = config["model"], config.get("normalizer")
    added_to = ("dropout", "continuing_subword_prefix", "end_of_word_suffix")
    if model.get("type") != "BPE" or any(model.get(name) for name in added_to):
        return None
    steps = config.get("pre_tokenizer") or {}
    steps = steps["pretokenizers"] if steps.get("type") == "Sequence" else [steps]
    kinds = [step.get("type") for step in steps]
    spaces = any(step.get("add_prefix_space") for step in steps)
    if kinds.count("ByteLevel") != 1 or set(kinds) - {"Split", "ByteLevel"} or spaces:
        return None
    if normaliser is None:
        return "raw"
    return "NFC" if normaliser == {"type": "NFC"} else None


def count_bytes(texts: pa.StringArray, form: Form) -> pa.Array:
    """Return each text's number of UTF-8 bytes (int64), an upper bound on its number of tokens.

    Args:
        texts: The texts.
        form: The result of ``byte_form``.
    """
    sizes = pc.binary_length(texts).cast(pa.int64())
    if form == "raw":
        return sizes
    # NFC does not change ASCII.
    others = pc.invert(pc.string_is_ascii(texts))
    normalised = (unicodedata.normalize("NFC", text) for text in texts.filter(others).to_pylist())
    found = [len(text.encode("utf-8")) for text in normalised]
    return pc.replace_with_mask(sizes, others, pa.array(found, pa.int64()))
