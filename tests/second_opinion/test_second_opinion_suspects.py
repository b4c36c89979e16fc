"""Which questions the judge is asked about, and in which order."""

from __future__ import annotations

import numpy as np

from pcl_reasoner.second_opinion.suspects import MOST, suspects

COSINES = np.array([0.6, 0.4, 0.49, 0.5, 0.1])
CONTAINMENT = np.array([0.0, 0.15, 0.14, 0.0, 0.0])
LOG_ODDS = np.array([-1.9, -9.0, -2.0, -2.1, 1.0])
NONE = np.zeros(5, bool)


def test_pairs_above_a_bar_are_asked_about_closest_first() -> None:
    # 1 has the n-grams; 3 is below the bar of -2, but its cosine is 0.5.
    assert suspects(COSINES, CONTAINMENT, LOG_ODDS, NONE) == [4, 0, 2, 3, 1]
    assert suspects(COSINES - 0.01, CONTAINMENT, LOG_ODDS, NONE) == [4, 0, 2, 1]
    assert suspects(COSINES, CONTAINMENT, LOG_ODDS - 2, NONE) == [4, 0, 1]


def test_without_log_odds_the_cosine_counts_and_without_both_the_n_grams() -> None:
    assert suspects(COSINES, CONTAINMENT, None, NONE) == [0, 3, 1]
    assert suspects(None, CONTAINMENT, None, NONE) == [1]


def test_what_a_rule_flags_comes_first_and_is_never_left_out() -> None:
    flagged = np.array([False, False, False, True, False])
    assert suspects(None, CONTAINMENT, LOG_ODDS, flagged) == [3, 4, 0, 2, 1]
    many = np.zeros(MOST + 3)
    assert suspects(None, many, many, np.zeros(MOST + 3, bool)) == list(range(MOST))
    assert len(suspects(None, many, many, np.ones(MOST + 3, bool))) == MOST + 3
