"""Stages one after another: hours and disk by day, by hand."""

from __future__ import annotations

from pcl_reasoner.estimate.days import Day, Growth, StageTime, by_day, in_order, lines, stage_rows

GB = 1e9
SAMPLE = StageTime("r/sample", 10.0, Growth(start=11 * GB, after=4 * GB))
PACK = StageTime("r/pack", None, Growth())
TRAIN = StageTime(
    "r/train",
    60.0,
    Growth(start=5 * GB, step=100 * GB, count=3, every=10.0, end=30 * GB, after=35 * GB),
)
EXPORT = StageTime("r/export", None, Growth(end=30 * GB, after=30 * GB))
SCORE = StageTime("r/score", 2.0, Growth(start=2 * GB, after=1 * GB))
ORDER = in_order(50 * GB, [SAMPLE, PACK, TRAIN, EXPORT, SCORE])


def test_a_stage_starts_where_the_one_before_ends_with_what_it_left() -> None:
    assert [(one.start, one.before / GB) for one in ORDER] == [
        (0.0, 50),
        (10.0, 54),  # without the log of responses that are drawn
        (10.0, 54),
        (70.0, 89),
        (70.0, 119),
    ]
    # While it trains: rows 5, three checkpoints of 100, and the merged one of 30.
    assert [row[3:] for row in stage_rows(ORDER)] == [
        ("61 GB", "54 GB"),
        ("389 GB", "89 GB"),
        ("119 GB", "119 GB"),
        ("121 GB", "120 GB"),
    ]


def test_each_day_has_its_fullest_moment() -> None:
    """Day 1 ends 14 h into training, after one save; day 2 after 38 h, with all three."""
    assert by_day(ORDER) == [
        Day(1, 1, ("r/sample", "r/train"), 159 * GB),
        Day(2, 2, ("r/train",), 359 * GB),
        Day(3, 3, ("r/train", "r/score"), 389 * GB),
    ]


def test_days_that_are_alike_are_one() -> None:
    long = StageTime("r/train", 24.0 * 6, Growth(start=5 * GB))
    assert by_day(in_order(0.0, [long])) == [Day(1, 6, ("r/train",), 5 * GB)]
    assert by_day(in_order(0.0, [PACK])) == []


def test_what_is_not_known_is_named() -> None:
    whole, unknown = lines(ORDER)
    assert whole.endswith("one after another: 72.0 h")
    assert unknown.endswith("counted as 0: pack, export")


def test_no_more_checkpoints_than_are_kept() -> None:
    """Rows of 5 and, after 0, 2 and 5 saves at 10 h, 0, 2 and 3 checkpoints of 100."""
    found = [TRAIN.growth.at(hours) / GB for hours in (9.0, 20.0, 50.0)]
    assert found == [5, 205, 305]
