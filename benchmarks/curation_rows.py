"""Nemotron-like rows of any number, and a tokenizer of Qwen2's kind, for the curation benchmarks.

No text comes from elsewhere: responses are drawn lines of this Python's own library (prose and
code) between drawn lines of arithmetic, LaTeX, Chinese and emoji. Lengths are log-normal, problems
have 1 to 16 rows, every twentieth lacks an answer, and one row in 500 is malformed.
"""

from __future__ import annotations

import json
import random
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pcl_reasoner.synthetic.base_model import train_tokenizer

VOCABULARY = 32_000
CORPUS_BYTES = 12_000_000
ROWS_A_GROUP = 500
TURNS = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
SCHEMA = pa.schema(
    [
        ("uuid", pa.string()),
        ("messages", TURNS),
        ("metadata", pa.string()),
        ("license", pa.string()),
    ]
)
MATHS = (
    "So we have ${a}x^2 - {b}x + {c} = 0$, and the discriminant is ${b}^2 - 4·{a}·{c}$.",
    "Wait, {a} * {b} = {d}. Let me check: {a}·{b} = {d}. Yes.",
    "Hmm, \\frac{{{a}}}{{{b}}} \\approx {e:.6f}, so $\\sqrt{{{d}}}$ is irrational.",
    "因此 $n = {d}$，余数是 {c}。",
    "Therefore ∑_{{k=1}}^{{{a}}} k ≤ {d} 👍, i.e. α_{b} → ∞.",
)


def corpus() -> list[str]:
    """Lines of the standard library's source, in the order of its paths."""
    lines: list[str] = []
    size = 0
    for path in sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py")):
        if "site-packages" in path.parts:
            continue
        text = path.read_text(encoding="utf-8", errors="ignore")
        lines += [line for line in text.splitlines() if any(c.isalpha() for c in line)]
        size += len(text)
        if size > CORPUS_BYTES:
            break
    return lines


def write_tokenizer(folder: Path) -> Path:
    """Train the stand-in: byte-level BPE with Qwen2's split and NFC."""
    if not (folder / "tokenizer.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        rng = random.Random(0)
        texts = [*corpus(), *(maths(rng) for _ in range(100_000))]
        tokenizer = train_tokenizer(texts, VOCABULARY)
        tokenizer.save(str(folder / "tokenizer.json"))
        config = {"tokenizer_class": "PreTrainedTokenizerFast"}
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def maths(rng: random.Random) -> str:
    """A line of arithmetic."""
    a, b, c = rng.randint(2, 9999), rng.randint(2, 999), rng.randint(1, 99)
    return rng.choice(MATHS).format(a=a, b=b, c=c, d=a * b, e=a / b)


def response(rng: random.Random, lines: list[str], characters: int) -> str:
    """A response of about so many characters."""
    found: list[str] = []
    size = 0
    while size < characters:
        line = maths(rng) if rng.random() < 0.3 else rng.choice(lines)
        found.append(line)
        size += len(line) + 1
    return "<think>" + "\n".join(found) + "</think>\n\\boxed{" + str(rng.randint(0, 999)) + "}"


def rows(count: int, characters: int, seed: int) -> Iterator[dict[str, Any]]:
    """Rows, a problem's one after the other.

    Args:
        count: Rows.
        characters: Mean of a response.
        seed: Which rows.
    """
    rng, drawn, lines = random.Random(seed), np.random.default_rng(seed), corpus()
    made = problems = 0
    while made < count:
        problems += 1
        problem = f"{problems}. {rng.choice(lines).strip()} {maths(rng)} Find $k_{{{problems}}}$."
        answer = "" if rng.random() < 0.05 else str(rng.randint(0, 999))
        mean = drawn.lognormal(np.log(characters) - 0.32, 0.8)
        for _ in range(min(rng.choice((1, 4, 7, 10, 13, 15, 16, 16, 16)), count - made)):
            text = response(rng, lines, int(mean * rng.uniform(0.7, 1.3)))
            metadata = json.dumps({"expected_answer": answer, "problem_source": "drawn"})
            yield {
                "uuid": f"{rng.getrandbits(64):016x}",
                "messages": [
                    {"role": "user", "content": problem},
                    {"role": "assistant", "content": text},
                ],
                "metadata": "{" if rng.random() < 0.002 else metadata,
                "license": "cc-by-4.0",
            }
            made += 1


def write_rows(folder: Path, count: int, characters: int, files: int) -> int:
    """Write rows as Parquet files; give the bytes of their responses."""
    if (folder / "size").exists():
        return int((folder / "size").read_text())
    folder.mkdir(parents=True, exist_ok=True)
    source, size = rows(count, characters, seed=count), 0
    for index in range(files):
        with pq.ParquetWriter(folder / f"math-{index:05d}.parquet", SCHEMA) as writer:
            left = count * (index + 1) // files - count * index // files
            while left:
                group = [next(source) for _ in range(min(ROWS_A_GROUP, left))]
                size += sum(len(row["messages"][1]["content"].encode()) for row in group)
                writer.write_table(pa.Table.from_pylist(group, SCHEMA))
                left -= len(group)
    (folder / "size").write_text(str(size))
    return size
