"""Which assumption moves a figure most, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from plan_trainings import SMALL

from pcl_reasoner.estimate.chips import Chip
from pcl_reasoner.estimate.data_size import DataSize
from pcl_reasoner.estimate.saves import Run, Waits, largest_slices
from pcl_reasoner.estimate.uncertainty import (
    Spread,
    largest,
    save_spread,
    start_spread,
    training_spreads,
    with_length,
    with_shares,
)

CHIP = Chip(
    "round", "", 2e9, 1e9, 5e8, 4_000_000, 1e8, 1e6, 1e5, 1e6, 4, "",
    {"matrix": 0.5, "attention": 0.25, "link": 0.6, "memory": 0.7},
)  # fmt: skip
SIZE = DataSize(90, 50.0, 50, 90, 100, 4, 1, 10, ())
"""90 segments of 50 tokens, two per row of 100."""


def test_the_widest_spread_is_the_largest() -> None:
    narrow, wide = Spread("a", (9.0, 11.0), "x"), Spread("b", (30.0, 10.0), "y")
    assert largest([narrow, wide]) == wide and (wide.low, wide.high) == (10.0, 30.0)
    assert largest([]) is None


def test_other_shares_change_the_rates_in_proportion() -> None:
    found = with_shares(CHIP, matrix=0.25, link=0.3)
    # Half of the matrix rate, and of attention's; half of every link; memory as it was.
    assert (found.matrix, found.attention) == (0.5e9, 2.5e8)
    assert (found.node, found.network, found.swap) == (0.5e6, 0.5e5, 0.5e6)
    assert found.memory == CHIP.memory


def test_longer_segments_need_more_rows_and_steps() -> None:
    """90 x 75 tokens fill 67.5 rows of 100: 68 by exact fill, and 68 / 50 of 10 steps."""
    longer = with_length(SIZE, 1.5)
    assert (longer.segment_tokens, longer.rows, longer.steps) == (75.0, 68, 14)
    # With one segment per row there are as many rows, and no segment is longer than a row.
    single = replace(SIZE, rows=90)
    assert with_length(single, 3.0) == replace(single, segment_tokens=100.0)


def test_what_moves_the_hours_of_training() -> None:
    """Hours that are half products and half links, per row: 0.5 and 0.6 are the shares now."""

    def hours(chip: Chip, size: DataSize) -> float:
        return (CHIP.matrix / chip.matrix + CHIP.node / chip.node) * size.rows

    by_products, by_links, by_length = training_spreads(hours, CHIP, SIZE, False)
    # 50 rows: 0.5 / 0.2 = 2.5 and 0.5 / 0.75 = 0.667 times as long for products.
    assert by_products.high == pytest.approx(50 * (2.5 + 1))
    assert by_products.low == pytest.approx(50 * (2 / 3 + 1))
    assert by_links.high == pytest.approx(50 * (1 + 2))
    # 90 x 25 tokens fill 22.5 rows: 23.
    assert (by_length.low, by_length.high) == (2 * 23, 2 * 68)
    assert "share of matrix products" in by_products.cause
    known = replace(CHIP, measured=frozenset({"matrix", "attention"}))
    assert list(training_spreads(hours, known, SIZE, True)) == []


RUN = Run(SMALL, 2, steps=10, checkpoint_steps=5, seconds=1.0, folder_bytes=4e9)


def test_a_save_depends_on_files_and_a_start_on_the_compile() -> None:
    """4 ranks per host write at 1 or 10 GB/s; 1 s to read the weights, 162 or 1 205 to compile."""
    save, start = save_spread(RUN, CHIP, Waits()), start_spread(RUN, Waits())
    assert save is not None and start is not None
    slices = largest_slices(SMALL)
    others = slices / CHIP.swap + slices / 1e9
    assert save.high == pytest.approx(others + 4 * slices / 1e9)
    assert save.low == pytest.approx(others + 4 * slices / 10e9)
    assert (start.low, start.high) == (163.0, 1206.0)
    known = Waits(2e9, 500.0, frozenset({"file_rate", "start_seconds"}))
    assert save_spread(RUN, CHIP, known) is None and start_spread(RUN, known) is None
