"""What is tokenised and what is not, and what happens when fastokens errs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from curate_helpers import Folder, Rows, read, row, write

from pcl_reasoner.core.stage import Counts, StageContext
from pcl_reasoner.curate import measuring, token_lengths
from pcl_reasoner.curate.lengths import LengthsConfig, lengths
from pcl_reasoner.curate.token_lengths import open_fast

pytest.importorskip("fastokens", reason="fastokens is an extra")

LONG = "\u0958\u0958"
"""6 bytes, 12 after NFC, which are 12 tokens."""
TEXTS = [
    ("a", "xyzq"),
    ("b", LONG),
    ("a", "xyzqxy"),
    ("c", "w w w w w w"),
    ("d", "xyz"),
    ("d", "x"),
]
"""Bytes after NFC by problem: a (4 + 6)/2 = 5, b 12, c 11, d 2. Tokens: the same, but c has 6."""

Measure = Callable[..., tuple[Counts, Rows, dict[str, Any]]]


@pytest.fixture
def measure(folder: Folder, context: StageContext, byte_tokenizer: Path) -> Measure:
    """Runs lengths over TEXTS in two parts; counts, rows and histogram."""
    made: list[int] = []

    def run(**config: Any) -> tuple[Counts, Rows, dict[str, Any]]:
        made.append(0)
        source, output = folder(f"source{len(made)}"), folder(f"out{len(made)}")
        rows = [row(problem, i, cot=cot) for i, (problem, cot) in enumerate(TEXTS)]
        write(source / "partial" / "part-00000.parquet", rows[:4])
        write(source / "partial" / "part-00001.parquet", rows[4:])
        inputs = {"rows": source, "tokenizer": byte_tokenizer}
        counts = lengths(LengthsConfig(**config), inputs, output, context)
        histogram = json.loads((output / "histogram.json").read_text())
        assert sorted(path.name for path in output.iterdir()) == ["histogram.json", "rows"]
        return counts, read(output / "rows"), histogram

    return run


@pytest.mark.parametrize(
    ("minimum", "inclusive", "kept", "texts"),
    [
        (5, True, "abac", 4),
        (5, False, "bc", 2),
        (6, True, "bc", 2),
        (7, True, "b", 2),
        (12, True, "b", 1),
        (12, False, "", 0),
        (13, True, "", 0),
        (0, True, "abacdd", 6),
    ],
)
def test_what_cannot_be_long_by_its_bytes_is_not_tokenised(
    measure: Measure, minimum: int, inclusive: bool, kept: str, texts: int
) -> None:
    counts, rows, histogram = measure(min_mean_tokens=minimum, inclusive=inclusive)
    assert "".join(r["problem"] for r in rows) == kept
    assert (counts.read, counts.kept) == (6, len(kept))
    assert counts.info["tokens"] == {"library": "fastokens", "texts": texts, "checked": 0}
    assert histogram["rows"]["not_tokenised"] == 6 - texts
    assert sum(histogram["rows"]["counts"]) == texts
    assert sum(histogram["problems"]["counts"]) + histogram["problems"]["not_tokenised"] == 4


def test_skipping_changes_no_row(measure: Measure) -> None:
    _, skipped, _ = measure(min_mean_tokens=5)
    counts, rows, histogram = measure(min_mean_tokens=5, skip_short=False)
    assert rows == skipped
    assert [(r["cot_tokens"], r["mean_cot_tokens"]) for r in rows] == [
        (4, 5.0),
        (12, 12.0),
        (6, 5.0),
        (6, 6.0),
    ]
    assert counts.info["tokens"]["texts"] == 6
    assert (histogram["rows"]["not_tokenised"], histogram["problems"]["not_tokenised"]) == (0, 0)


class PanicException(BaseException):
    """As PyO3 names what it makes of a panic in Rust."""


class Wrong:
    """A fastokens that errs on one text."""

    def __init__(self, file: Path, text: str, error: BaseException | None = None) -> None:
        self.real, self.text, self.error = open_fast(file), text, error

    def encode(self, text: str, **options: Any) -> Any:
        if text == self.text and self.error:
            raise self.error
        return self.real.encode(text[1:] if text == self.text else text, **options)

    def encode_batch_flat(self, texts: list[str], **options: Any) -> Any:
        if self.text in texts and self.error:
            raise self.error
        given = [text[1:] if text == self.text else text for text in texts]
        return self.real.encode_batch_flat(given, **options)


def use(monkeypatch: pytest.MonkeyPatch, text: str, error: BaseException | None = None) -> None:
    measuring._opened.cache_clear()  # a new process would have nothing opened
    monkeypatch.setattr(token_lengths, "open_fast", lambda file: Wrong(file, text, error))


def test_one_wrong_text_and_all_are_counted_by_tokenizers(
    measure: Measure, context: StageContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the third text, of the first part; the parts before and after it are redone, too."""
    _, right, _ = measure(min_mean_tokens=5)
    use(monkeypatch, "xyzqxy")
    monkeypatch.setattr(token_lengths, "CHECKED_OF", 1)
    counts, rows, _ = measure(min_mean_tokens=5)
    assert rows == right
    told = (
        "a text of 6 characters that begins with 'xyzqxy' has 5 tokens, expected 6 "
        "(part-00000.parquet)"
    )
    assert counts.info["tokens"] == {"library": "tokenizers", "texts": 4, "mismatch": told}
    assert context.warnings == [
        f"fastokens is not used: {told}. All tokens are counted by tokenizers."
    ]


def test_every_text_checked(measure: Measure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_lengths, "CHECKED_OF", 1)
    counts, _, _ = measure(min_mean_tokens=5)
    assert counts.info["tokens"] == {"library": "fastokens", "texts": 4, "checked": 4}


def test_a_wrong_probe_is_told_before_the_first_text(
    measure: Measure, context: StageContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, token_lengths.PROBES[2])
    counts, _, _ = measure(min_mean_tokens=5)
    assert counts.info["tokens"]["library"] == "tokenizers"
    assert "begins with 'Let $f(x)" in context.warnings[0]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (RuntimeError("match limit"), "RuntimeError: match limit"),
        (PanicException("out of bounds"), "RuntimeError: panicked: out of bounds"),
    ],
)
def test_an_error_of_fastokens_is_a_mismatch(
    measure: Measure,
    context: StageContext,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    told: str,
) -> None:
    _, right, _ = measure(min_mean_tokens=5)
    use(monkeypatch, LONG, error)
    counts, rows, _ = measure(min_mean_tokens=5)
    assert rows == right
    assert counts.info["tokens"]["library"] == "tokenizers"
    assert f"{told} (part-00000.parquet)" in context.warnings[0]


def test_an_interrupt_is_no_error_of_fastokens(
    measure: Measure, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, LONG, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        measure(min_mean_tokens=5)


def test_a_panic_while_fastokens_opens_is_told(
    measure: Measure, context: StageContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    def panic(file: Path) -> None:
        raise PanicException("no merges")

    _, right, _ = measure(min_mean_tokens=5)
    measuring._opened.cache_clear()
    monkeypatch.setattr(token_lengths, "open_fast", panic)
    _, rows, _ = measure(min_mean_tokens=5)
    assert rows == right
    assert "RuntimeError: panicked: no merges" in context.warnings[0]


@pytest.mark.parametrize("error", [ImportError("none"), ValueError("unknown kind")])
def test_without_fastokens_tokenizers_count(
    measure: Measure, context: StageContext, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(file: Path) -> None:
        raise error

    _, right, _ = measure(min_mean_tokens=5)
    measuring._opened.cache_clear()
    monkeypatch.setattr(token_lengths, "open_fast", fail)
    counts, rows, _ = measure(min_mean_tokens=5)
    assert rows == right
    assert counts.info["tokens"] == {"library": "tokenizers", "texts": 4}
    assert context.warnings == []
