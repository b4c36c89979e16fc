from __future__ import annotations

import pytest

from pcl_reasoner.evaluate.scores import average, interval_95, majority, pass_at, standard_error
from pcl_reasoner.evaluate.verdict import SCORES, SOURCE

T, F = True, False


def test_average_is_the_mean_over_problems_of_the_mean_over_samples() -> None:
    # (3/4 + 0/1) / 2 = 0.375; over all five samples it would be 3/5.
    assert average([[T, T, F, T], [F]]) == pytest.approx(0.375)


def test_standard_error_is_over_problems() -> None:
    # Means 0.75, 0.25, 0.5: centre 0.5, variance (0.0625 + 0.0625 + 0) / 2 = 0.0625,
    # sqrt(0.0625 / 3) = 0.1443376. With ddof 0 it would be 0.1178511, over 12 samples 0.1507557.
    correct = [[T, T, T, F], [T, F, F, F], [T, T, F, F]]
    assert standard_error(correct) == pytest.approx(0.1443376, abs=1e-7)
    # 0.5 ± 1.96 · 0.1443376 = 0.5 ± 0.2829016
    assert interval_95(0.5, standard_error(correct)) == pytest.approx(
        [0.2170984, 0.7829016], abs=1e-6
    )


def test_one_problem_has_no_error_and_an_interval_stays_in_range() -> None:
    assert standard_error([[T, F]]) is None
    assert interval_95(0.5, None) is None
    assert interval_95(0.95, 0.05) == pytest.approx([0.852, 1.0])


def test_pass_at_k_is_unbiased() -> None:
    # c = 1 of n = 4, k = 2: 1 − C(3, 2)/C(4, 2) = 1 − 3/6; biased it were 1 − (3/4)² = 0.4375.
    assert pass_at([[T, F, F, F]], 2) == pytest.approx(0.5)
    # c = 3: C(1, 2) = 0 -> 1; c = 0 -> 0; mean of 0.5, 1 and 0.
    assert pass_at([[T, F, F, F], [T, T, F, T], [F, F, F, F]], 2) == pytest.approx(0.5)
    assert pass_at([[T, F, F, F], [F, F, F, F]], 4) == pytest.approx(0.5)
    assert pass_at([[T, F, F, F]], 1) == pytest.approx(0.25)
    with pytest.raises(ValueError, match="pass@3"):
        pass_at([[T, F, F], [T, F]], 3)


def test_majority() -> None:
    answers = [
        ["8", "9", "9", "8", "9"],  # 9 has three votes
        ["8", "9", "9", "8", None],  # two each: 8 came first
        [None, None, None, None, "8"],  # without an answer no vote
        [None, None, None, None, None],
    ]
    correct = [[answer == "8" for answer in row] for row in answers]
    assert majority(answers[:1], correct[:1]) == 0
    assert majority(answers[1:2], correct[1:2]) == 1
    assert majority(answers[2:3], correct[2:3]) == 1
    assert majority(answers[3:], correct[3:]) == 0
    assert majority(answers, correct) == pytest.approx(0.5)
    # Mostly incorrect, but no incorrect answer as frequent as the correct one.
    assert majority([["1", "8", "2", "8", "3"]], [[F, T, F, T, F]]) == 1


def test_the_published_table() -> None:
    table = {row.model: (row.aime24, row.aime25) for row in SCORES}
    assert len(table) == len(SCORES) == 13
    assert table["PCL-Reasoner-V1"] == (85.7, 84.2)
    assert table["PCL-Reasoner-V1.5"] == (90.9, 85.7)
    assert table["DeepSeek-R1-Distill-Qwen-32B"] == (72.6, 49.6)
    assert sum(row.size == "32B" for row in SCORES) == 8
    assert all(row.source == SOURCE and "2601.14716" in SOURCE for row in SCORES)
    # Sums of the columns as the paper prints them: a changed digit shows.
    assert sum(row.aime24 for row in SCORES) == pytest.approx(1106.1)
    assert sum(row.aime25 for row in SCORES) == pytest.approx(1004.7)
