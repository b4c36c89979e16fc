"""Counts how often numbers and formulas occur in problems; writes signature/background.json.

    python benchmarks/signature_background.py FILE.jsonl … [--at-most 2000]

The counts in the package were made from the questions of College Math, GaoKao (cloze, choice, and
2023 in English), CN Middle School, Minerva, AQuA, and the first 2 000 of GSM8K's training set:
6 299 problems, none of a benchmark whose fingerprints are in the package. It has counts only.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from pcl_reasoner.contamination.fields import PROBLEM_FIELDS, first_of
from pcl_reasoner.signature import background
from pcl_reasoner.signature.index import families_of

TARGET = Path(background.__file__).with_name("background.json")


def texts(file: Path) -> Iterator[str]:
    """The questions of a file."""
    for line in file.read_text(encoding="utf-8").splitlines():
        yield str(first_of(json.loads(line), PROBLEM_FIELDS))


def main() -> None:
    """Count and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--at-most", type=int, help="problems per file")
    given = parser.parse_args()
    found = [
        families_of(text) for file in given.files for text in islice(texts(file), given.at_most)
    ]
    counts = Counter(term for one in found for term in set().union(*one.values()))
    lengths = [len(one["numbers"] | one["formulas"]) for one in found]
    frequent = {
        term: count for term, count in sorted(counts.items()) if count >= background.MIN_COUNT
    }
    value = {
        "problems": len(found),
        "terms_per_problem": round(sum(lengths) / len(lengths), 2),
        "concepts_per_problem": round(sum(len(one["concepts"]) for one in found) / len(found), 2),
        "counts": frequent,
    }
    TARGET.write_text(json.dumps(value, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{len(found)} problems, {len(frequent)} terms -> {TARGET}")


if __name__ == "__main__":
    main()
