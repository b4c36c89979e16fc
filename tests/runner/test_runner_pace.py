"""Durations and rates by hand."""

import pytest

from pcl_reasoner.runner.pace import Pace, duration


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (243, "4 min 3 s"),
        (4320, "1 h 12 min"),
    ],
)
def test_duration(seconds: float, said: str) -> None:
    assert duration(seconds) == said


def test_pace_counts_from_where_the_stage_went_on() -> None:
    """At 1000 when it went on; 100 more in 10 s are 10/s, and 900 are left: 90 s."""
    pace = Pace(1000, 50.0, (5000, "problems"))
    assert pace.describe(1000, 2000, "rows", now=50.0) == "1,000/2,000 rows"
    said = pace.describe(1100, 2000, "rows", now=60.0)
    assert said == "1,100/2,000 rows, 10.0 rows/s, 1 min 30 s left"
    assert pace.describe(1001, None, "steps", now=70.0) == "1,001 steps, 20 s each"
