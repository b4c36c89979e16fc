"""Curation as plain scripts do it: whole files in Python objects, one tokenizer call a sample.

    python benchmarks/curation_plain.py STAGE INPUT OUTPUT [--tokenizer DIR] [--tokens N]

Each of the four steps reads its whole input and writes JSON lines: Parquet by pandas, lengths by
transformers' AutoTokenizer. It stands for what upstream's scripts are described to do, and is
written anew.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

Rows = list[dict[str, Any]]


def read_rows(path: Path) -> Rows:
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def write_rows(path: Path, rows: Rows) -> None:
    with path.open("w", encoding="utf-8") as handle:
        for row in rows:
            handle.write(json.dumps(row, ensure_ascii=False) + "\n")


def convert(source: Path, output: Path) -> None:
    import pandas

    rows: Rows = []
    for path in sorted(source.glob("*.parquet")):
        for row in pandas.read_parquet(path).to_dict("records"):
            try:
                metadata = json.loads(row.pop("metadata"))
                user, assistant = row.pop("messages")
            except ValueError:
                continue
            problem, cot = user["content"], assistant["content"]
            answer, origin = metadata["expected_answer"], metadata["problem_source"]
            named = {"problem": problem, "cot": cot, "ground_truth": answer}
            rows.append({**named, "problem_source": origin, **row})
    write_rows(output / "convert.jsonl", rows)


def difficulty(source: Path, output: Path) -> None:
    rows = read_rows(source / "convert.jsonl")
    passes = Counter(row["problem"] for row in rows)
    write_rows(output / "partial.jsonl", [row for row in rows if passes[row["problem"]] % 16])
    write_rows(
        output / "all_correct.jsonl", [row for row in rows if not passes[row["problem"]] % 16]
    )


def lengths(source: Path, output: Path, tokenizer: Path, tokens: int) -> None:
    from transformers import AutoTokenizer

    encoder = AutoTokenizer.from_pretrained(tokenizer)
    rows = read_rows(source / "partial.jsonl")
    found: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        found[row["problem"]].append(len(encoder.encode(row["cot"])))
    long = {problem for problem, each in found.items() if sum(each) / len(each) >= tokens}
    write_rows(output / "long.jsonl", [row for row in rows if row["problem"] in long])


def unique(source: Path, output: Path) -> None:
    first: dict[str, dict[str, Any]] = {}
    for row in read_rows(source / "long.jsonl"):
        if row["ground_truth"].strip():
            first.setdefault(row["problem"], row)
    write_rows(output / "problems.jsonl", list(first.values()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stage", choices=("convert", "difficulty", "lengths", "unique"))
    parser.add_argument("input", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--tokens", type=int)
    given = parser.parse_args()
    stages = {"convert": convert, "difficulty": difficulty, "unique": unique}
    if given.stage == "lengths":
        lengths(given.input, given.output, given.tokenizer, given.tokens)
    else:
        stages[given.stage](given.input, given.output)


if __name__ == "__main__":
    main()
