"""Token counts by fastokens, tokenizers and transformers: how fast, and whether they agree.

    python benchmarks/curation_tokens.py [--texts 300] [--strings 200000] [--work DIR]

Speed: CPU-seconds of one thread on responses of 30 000 characters (``curation_rows.py``), none of
which a side sees twice, as both libraries remember words. Agreement: the token ids of a fuzz corpus
by fastokens against those by tokenizers, string by string, and of every code point below U+30000.
The tokenizer is the stand-in: byte-level BPE, 32 000 tokens, Qwen2's split and NFC.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

ROUNDS = 3
WORDS = "let's WE'LL it's Don't I'm they'RE answer sin cos naïve Ångström straße İstanbul"
LATEX = (
    "\\frac{a}{b} \\sqrt[3]{x_{12}} $$\\sum_{i=1}^{n} i^2$$ \\begin{align*} &= \\boxed{42} "
    "\\left( \\right) \\cdot \\%"
)
EMOJI = "👍 👍🏽 👩\u200d🏫 🇨🇳 1️⃣ 😀😀 ❤️ 🏳️\u200d🌈 🧑🏿\u200d🤝\u200d🧑🏻"
MARKS = "\u0301\u0327\u0308\u0323\u093c\u200d\ufe0f\u0e33\u1161"
SPACES = (" ", "  ", "\n", "\r\n", "\t", "\n\n \n", "\u00a0", "\u3000", "\u2028", " \t ", "\r")
SPECIAL = "<|im_end|> <|endoftext|> <think> </think> <|im_start| <answer> <think"
RANGES = [
    (0x20, 0x7F),
    (0x00, 0x20),
    (0xA0, 0x250),
    (0x370, 0x530),
    (0x600, 0x700),
    (0x900, 0xE80),
    (0x1100, 0x1200),
    (0x1E00, 0x2C00),
    (0x3040, 0x3100),
    (0x4E00, 0xA000),
    (0xAC00, 0xD7A4),
    (0xF900, 0xFB50),
    (0xFE00, 0x10000),
    (0x1D400, 0x1D800),
    (0x1F300, 0x1FB00),
    (0x20000, 0x2A6E0),
    (0x2F800, 0x2FA20),
]


def piece(rng: random.Random) -> str:
    """A bit of any script, number, formula or space."""
    kind = rng.randrange(9)
    if kind == 0:
        return rng.choice(WORDS.split())
    if kind == 1:
        return rng.choice(LATEX.split())
    if kind == 2:
        return rng.choice(EMOJI.split())
    if kind == 3:
        return str(rng.choice((rng.randint(0, 10**12), rng.uniform(-9, 9), f"{rng.random():.2e}")))
    if kind == 4:
        return rng.choice("aeoucnAEOÅé가क") + "".join(rng.choices(MARKS, k=rng.randint(1, 3)))
    if kind == 5:
        return rng.choice(SPACES)
    if kind == 6:
        return rng.choice(SPECIAL.split())
    first, last = rng.choice(RANGES)
    return "".join(chr(rng.randrange(first, last)) for _ in range(rng.randint(1, 6)))


def strings(count: int, seed: int = 0) -> Iterator[str]:
    """The fuzz corpus: strings of 1 to 20 pieces, half of them with spaces between."""
    rng = random.Random(seed)
    for _ in range(count):
        between = rng.choice(("", "", " ", rng.choice(SPACES)))
        yield between.join(piece(rng) for _ in range(rng.randint(1, 20)))


def code_points() -> Iterator[str]:
    """Every code point below U+30000 but surrogates: alone between letters, and with a mark."""
    for code in range(0x30000):
        if not 0xD800 <= code < 0xE000:
            yield f"a{chr(code)}b {chr(code)}\u0301"


def mismatches(fast: Any, reference: Any, texts: Iterator[str]) -> tuple[int, list[str]]:
    """How many strings there are, and those of which the ids differ."""
    total, wrong = 0, []
    while group := list(islice(texts, 10_000)):
        ids, offsets = fast.encode_batch_flat(group, add_special_tokens=False)
        flat, starts = np.frombuffer(ids, np.uint32), np.frombuffer(offsets, np.uint64)
        expected = reference.encode_batch_fast(group, add_special_tokens=False)
        for index, (text, one) in enumerate(zip(group, expected, strict=True)):
            found = flat[int(starts[index]) : int(starts[index + 1])].tolist()
            if found != one.ids:
                wrong.append(text)
        total += len(group)
    return total, wrong


def timed(count: Callable[[Sequence[str]], int], texts: Sequence[str]) -> tuple[int, float]:
    """Tokens and CPU-seconds."""
    started = time.process_time()
    tokens = count(texts)
    return tokens, time.process_time() - started


def speed(folder: Path, fast: Any, reference: Any, rounds: Sequence[Sequence[str]]) -> None:
    """Count each round's texts by each side in turn: no side sees a text twice."""
    from transformers import AutoTokenizer

    from pcl_reasoner.curate.token_lengths import count_fast, count_tokens

    auto = AutoTokenizer.from_pretrained(folder)
    sides: dict[str, Callable[[Sequence[str]], int]] = {
        "transformers, a call a text": lambda texts: sum(len(auto.encode(text)) for text in texts),
        "tokenizers": lambda texts: sum(count_tokens(reference, texts)),
        "fastokens": lambda texts: sum(count_fast(fast, texts)),
    }
    found: dict[str, list[tuple[int, float]]] = {name: [] for name in sides}
    for texts in rounds:
        for name, count in sides.items():
            found[name].append(timed(count, texts))
    rates = {
        name: sum(tokens for tokens, _ in each) / sum(seconds for _, seconds in each)
        for name, each in found.items()
    }
    for name, rate in rates.items():
        times = rate / min(rates.values())
        print(f"{name:28} {rate / 1e6:6.2f} M tokens a CPU-second, {times:5.1f} times the slowest")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--texts", type=int, default=300)
    parser.add_argument("--strings", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path, help="kept; a temporary folder when left out")
    given = parser.parse_args()
    os.environ["RAYON_NUM_THREADS"] = "1"
    from curation_rows import rows, write_tokenizer

    from pcl_reasoner.curate.token_lengths import open_fast, open_tokenizer

    with tempfile.TemporaryDirectory() as temporary:
        folder = write_tokenizer((given.work or Path(temporary)) / "tokenizer")
        file = folder / "tokenizer.json"
        fast, reference = open_fast(file), open_tokenizer(file)
        found = rows(given.texts, 30_000, seed=1)
        texts = [row["messages"][1]["content"] for row in found]
        print(f"{len(texts)} texts, {sum(map(len, texts))} characters")
        speed(folder, fast, reference, [texts[start::ROUNDS] for start in range(ROUNDS)])
    for name, corpus in (
        ("fuzz strings", strings(given.strings, given.seed)),
        ("code points", code_points()),
    ):
        total, wrong = mismatches(fast, reference, corpus)
        shown = f": {[ascii(text) for text in wrong[:5]]}" if wrong else ""
        print(f"{len(wrong)} of {total} {name} have other tokens{shown}")


if __name__ == "__main__":
    main()
