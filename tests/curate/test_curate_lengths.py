"""Means and histograms by hand, whatever counts the tokens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from curate_helpers import Folder, read, row, write

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.curate.lengths import LengthsConfig, lengths


def lengths_source(path: Path) -> Path:
    """Means: a (4 + 6)/2 = 5, b 5.5, c 4, d 0."""
    tokens = [("a", 4), ("b", 5), ("c", 4), ("a", 6), ("d", 0), ("b", 6)]
    rows = [row(p, i, cot=" ".join(["w"] * n)) for i, (p, n) in enumerate(tokens)]
    write(path / "partial" / "part-00000.parquet", rows[:3])
    write(path / "partial" / "part-00001.parquet", rows[3:])
    return path


@pytest.mark.parametrize(
    ("inclusive", "problems", "means"),
    [(True, "abab", [5.0, 5.5, 5.0, 5.5]), (False, "bb", [5.5, 5.5])],
)
def test_mean_lengths(
    folder: Folder,
    context: StageContext,
    tokenizer: Path,
    inclusive: bool,
    problems: str,
    means: list[float],
) -> None:
    source, output = lengths_source(folder("source")), folder("out")
    config = LengthsConfig(min_mean_tokens=5, inclusive=inclusive)
    counts = lengths(config, {"rows": source, "tokenizer": tokenizer}, output, context)
    assert (counts.unit, counts.read, counts.kept) == ("rows", 6, len(problems))
    assert counts.dropped == {"short_mean_cot": 6 - len(problems)}
    assert counts.info["problems"]["kept"] == len(set(problems))
    rows = read(output / "rows")
    assert "".join(r["problem"] for r in rows) == problems
    assert [r["mean_cot_tokens"] for r in rows] == means
    assert [r["cot_tokens"] for r in rows] == [len(r["cot"].split()) for r in rows]
    histogram = json.loads((output / "histogram.json").read_text())
    edges = list(range(8))
    assert histogram == {
        "threshold": 5,
        "inclusive": inclusive,
        "rows": {"edges": edges, "counts": [1, 0, 0, 0, 2, 1, 2], "not_tokenised": 0},
        "problems": {"edges": edges, "counts": [1, 0, 0, 0, 1, 2, 0], "not_tokenised": 0},
    }
    assert sorted(path.name for path in output.iterdir()) == ["histogram.json", "rows"]


def test_lengths_needs_a_tokenizer(folder: Folder, context: StageContext) -> None:
    inputs = {"rows": lengths_source(folder("source")), "tokenizer": folder("model")}
    with pytest.raises(StageError, match="tokenizer.json"):
        lengths(LengthsConfig(min_mean_tokens=5), inputs, folder("out"), context)
