"""Repeated phrases by hand, and against a search that tries every lag and every start."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from pcl_reasoner.tidy import repeats
from pcl_reasoner.tidy.repeats import Repeat, gram_hashes, longest_repeat, most_frequent

PHRASE = list(range(100, 125))
"""25 different tokens."""


def tokens(*parts: list[int]) -> npt.NDArray[np.int32]:
    return np.array([token for part in parts for token in part], np.int32)


def found(*parts: list[int], min_tokens: int = 20) -> Repeat | None:
    return longest_repeat(tokens(*parts), min_tokens)


def by_all_lags(text: npt.NDArray[np.int32], min_tokens: int) -> Repeat | None:
    """The definition, word by word, in Python."""
    best = None
    for lag in range(min_tokens, len(text) // 3 + 1):
        run, longest, start = 0, 0, 0
        for place in range(len(text) - lag):
            run = run + 1 if text[place] == text[place + lag] else 0
            if run > longest:
                longest, start = run, place - run + 1
        times = longest // lag + 1
        if times >= 3 and (best is None or times > best.times):
            best = Repeat(times, lag, start)
    return best


@pytest.mark.parametrize("times", [3, 4, 7])
def test_a_phrase_is_found_with_its_times_its_length_and_its_start(times: int) -> None:
    assert found([1, 2, 3], PHRASE * times, [4, 5]) == Repeat(times, 25, 3)


def test_a_phrase_twice_in_a_row_or_three_times_apart_is_no_repeat() -> None:
    assert found([1, 2, 3], PHRASE * 2, [4, 5]) is None
    assert found(PHRASE, [1], PHRASE, [2], PHRASE, [3], PHRASE) is None


def test_a_phrase_is_found_at_the_very_start_and_at_the_very_end() -> None:
    before = list(range(1000, 1040))
    assert found(PHRASE * 4, before) == Repeat(4, 25, 0)
    assert found(before, PHRASE * 4) == Repeat(4, 25, 40)
    assert found(PHRASE * 4) == Repeat(4, 25, 0)


def test_one_token_less_at_either_end_is_one_time_less() -> None:
    before, after = [1, 2, 3], [4, 5, 6]
    assert found(before, (PHRASE * 4)[1:], after) == Repeat(3, 25, 3)
    assert found(before, (PHRASE * 4)[:-1], after) == Repeat(3, 25, 3)
    assert found((PHRASE * 4)[:-1]) == Repeat(3, 25, 0)
    assert found((PHRASE * 3)[:-1]) is None
    # A token that happens to continue the phrase changes nothing.
    assert found(before, (PHRASE * 4)[1:], [PHRASE[0]], after) == Repeat(4, 25, 3)
    assert found([PHRASE[-1]], PHRASE * 4, [PHRASE[0]]) == Repeat(4, 25, 0)


def test_a_changed_token_in_the_middle_ends_the_run() -> None:
    text = tokens(PHRASE * 4)
    text[60] = 1
    assert longest_repeat(text, 20) is None


def test_phrases_of_just_the_shortest_length() -> None:
    assert found(list(range(20)) * 4) == Repeat(4, 20, 0)
    # 19 tokens count as a phrase of 38: eight times are four times of it, seven are three.
    assert found(list(range(19)) * 8) == Repeat(4, 38, 0)
    assert found(list(range(19)) * 7) == Repeat(3, 38, 0)
    assert found(list(range(19)) * 4) is None
    assert found(list(range(21)) * 4) == Repeat(4, 21, 0)


def test_a_single_token_counts_in_twenties() -> None:
    assert found([7] * 80) == Repeat(4, 20, 0)
    assert found([7] * 79) == Repeat(3, 20, 0)
    assert found([7] * 60) == Repeat(3, 20, 0)
    assert found([7] * 59) is None
    # Period 3 counts in 21s.
    assert found([7, 8, 9] * 28) == Repeat(4, 21, 0)
    assert found(([7, 8, 9] * 28)[:-1]) == Repeat(3, 21, 0)


def test_the_phrase_with_the_most_times_counts_and_among_equals_the_shortest() -> None:
    other = list(range(200, 230))
    assert found(PHRASE * 3, [1], other * 5) == Repeat(5, 30, 76)
    assert found(other * 4, [1], PHRASE * 4) == Repeat(4, 25, 121)
    # The whole text is a phrase four times, in which a token stands three times in a row.
    assert found([7, 7, 7, 8] * 4, min_tokens=1) == Repeat(4, 4, 0)


def test_a_phrase_longer_than_2048_tokens_is_found() -> None:
    phrase = list(range(3000))
    assert found([5], phrase * 4, [6]) == Repeat(4, 3000, 1)


def test_a_table_of_numbers_is_no_repeat() -> None:
    """Rows with the same bars and other digits: | 0 0 7 | 0 0 4 9 | …"""
    rows = []
    for number in range(300):
        first, second = f"{number:03d}", f"{number * number:05d}"
        rows += [11, *map(int, first), 11, *map(int, second), 11, 12]
    assert found(rows) is None
    # A table whose rows are all equal is one.
    assert found(rows[:12] * 7) == Repeat(3, 24, 0)


def test_short_and_empty_texts_have_no_repeat() -> None:
    for length in (0, 1, 19, 20, 21, 40, 59):
        assert longest_repeat(np.arange(length, dtype=np.int32), 20) is None
    assert longest_repeat(np.zeros(3, np.int32), 1) == Repeat(3, 1, 0)
    assert longest_repeat(np.zeros(2, np.int32), 1) is None


@pytest.mark.parametrize("seed", range(60))
def test_every_lag_and_every_start_give_the_same(seed: int) -> None:
    draw = np.random.default_rng(seed)
    for _ in range(20):
        size, letters = int(draw.integers(3, 70)), int(draw.integers(1, 4))
        text = draw.integers(0, letters, size).astype(np.int32)
        if draw.random() < 0.7:
            phrase = text[: int(draw.integers(1, 12))]
            start = int(draw.integers(0, size))
            copies = np.tile(phrase, int(draw.integers(2, 6)))
            text = np.concatenate([text[:start], copies, text[start:]])
        least = int(draw.integers(1, 7))
        assert longest_repeat(text, least) == by_all_lags(text, least)


def test_equal_hashes_are_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """With hashes that are always the same, all lags are looked at, and the tokens decide."""

    def same(text: npt.NDArray[np.int32], size: int) -> npt.NDArray[np.uint64]:
        return np.zeros(max(0, len(text) - size + 1), np.uint64)

    def none(text: npt.NDArray[np.int32]) -> tuple[npt.NDArray[np.uint64], ...]:
        return np.zeros(len(text) + 1, np.uint64), np.ones(len(text) + 1, np.uint64)

    monkeypatch.setattr(repeats, "gram_hashes", same)
    monkeypatch.setattr(repeats, "prefix_hashes", none)
    assert found(list(range(300))) is None
    assert found([1, 2], PHRASE * 4) == Repeat(4, 25, 2)
    assert most_frequent(tokens(PHRASE * 3, [1], PHRASE), 20) == 4
    assert most_frequent(np.arange(300, dtype=np.int32), 20) == 1


def test_only_lags_that_can_be_better_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """One token again and again, with another one every 60 to 100 places."""
    text = np.ones(4000, np.int32)
    places = np.cumsum([60 + 17 * number % 41 for number in range(50)])
    text[places] = np.arange(50) + 1000
    looked_at = []
    real = repeats._repeat_at

    def counted(tokens: npt.NDArray[np.int32], lag: int) -> Repeat:
        looked_at.append(lag)
        return real(tokens, lag)

    monkeypatch.setattr(repeats, "_repeat_at", counted)
    # The 13th gap has 99 equal tokens, after 12 · 60 + 220 places: 4 phrases of 20, and no more of
    # any other length.
    assert longest_repeat(text, 20) == by_all_lags(text, 20) == Repeat(4, 20, 941)
    # Three blocks of up to 23 tokens have equal tokens after them; a fifth time is then possible.
    assert looked_at == [20, 21, 22, 23]


def test_the_most_frequent_phrase_is_counted_wherever_it_stands() -> None:
    apart = [token for number in range(21) for token in [*PHRASE[:20], 1000 + number]]
    assert most_frequent(tokens(apart), 20) == 21
    assert most_frequent(tokens(apart[:-21]), 20) == 20
    # Occurrences may overlap: 40 equal tokens have 21 starts.
    assert most_frequent(np.full(40, 7, np.int32), 20) == 21
    assert most_frequent(np.arange(20, dtype=np.int32), 20) == 1
    assert most_frequent(np.arange(19, dtype=np.int32), 20) == 0


def test_hashes_are_equal_for_equal_n_grams_only() -> None:
    text = tokens([1, 2, 3, 1, 2, 3, 3, 2, 1, 0, 1, 2, 3])
    hashes = gram_hashes(text, 3)
    grams = [tuple(text[place : place + 3].tolist()) for place in range(11)]
    assert len(hashes) == 11
    for first in range(11):
        for second in range(11):
            assert (hashes[first] == hashes[second]) == (grams[first] == grams[second])
