"""The interval of a share, by hand."""

import pytest

from pcl_reasoner.verifiers.shares import wilson


def test_wilson_by_hand() -> None:
    """0 of 10: the upper end is z²/(n + z²) = 3.8416 / 13.8416."""
    assert wilson(0, 10) == (0.0, pytest.approx(0.27754, abs=1e-5))
    assert wilson(10, 10) == (pytest.approx(0.72246, abs=1e-5), pytest.approx(1.0))
    assert wilson(5, 10) == (pytest.approx(0.23659, abs=1e-5), pytest.approx(0.76341, abs=1e-5))
