"""How many tokens a text has.

A sample record: ``"<think>6·7 = 42</think>"`` has 12 tokens, and a problem whose three texts have
10, 12 and 14 has a mean of 12.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tokenizers import Tokenizer

CHARACTERS_AT_ONCE = 1 << 20
"""Texts encoded in one call: an encoding holds about 100 bytes a token, so 2**20 stays small."""


def count_tokens(tokenizer: Tokenizer, texts: Sequence[str]) -> list[int]:
    """Tokens a text, special tokens that a template would add not counted.

    Args:
        tokenizer: Set to neither cut nor pad.
        texts: Any number of texts.
    """
    lengths: list[int] = []
    for group in _groups(texts):
        encodings = tokenizer.encode_batch_fast(group, add_special_tokens=False)
        lengths += [len(encoding) for encoding in encodings]
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
