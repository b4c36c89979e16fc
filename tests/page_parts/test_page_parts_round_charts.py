from __future__ import annotations

import re

import pytest

from pcl_reasoner.page_parts.round_charts import (
    Axis,
    Column,
    Curve,
    moving_mean,
    round_chart,
    round_ticks,
    stacked_chart,
)

FREE = Axis(least=None)


def _points(svg: str, style: str) -> list[str]:
    found = re.search(rf'class="{style}" points="(.*?)"', svg)
    assert found, style
    return found[1].split()


def test_the_band_reaches_one_error_below_and_above():
    curve = Curve("all", "plain", "rl_1", 0, [(0.0, 40.0), (10.0, 60.0)], errors=[10.0, 10.0])
    svg = str(round_chart("accuracy", [curve], {"rl_1": 10}, FREE))
    # 30 … 70 are 156 pixels up from y = 166; rounds 0 … 10 are 296 pixels from x = 52.
    assert _points(svg, "band plain") == ["52.0,166.0", "348.0,88.0", "348.0,10.0", "52.0,88.0"]
    assert _points(svg, "curve plain") == ["52.0,127.0", "348.0,49.0"]


def test_a_band_ends_where_the_axis_ends():
    curve = Curve("all", "plain", "rl_1", 0, [(0.0, 95.0), (4.0, 75.0)], errors=[10.0, 25.0])
    svg = str(round_chart("accuracy", [curve], {"rl_1": 4}, Axis(" %", least=None, most=100.0)))
    # 40 … 100 % are 156 pixels: 85 and 50 below; the upper edges, 105 and 100, are at the top.
    assert _points(svg, "band plain") == ["52.0,49.0", "348.0,140.0", "348.0,10.0", "52.0,10.0"]
    assert ">100 %</text>" in svg and ">120 %</text>" not in svg


def test_the_second_stage_begins_where_the_first_one_ends():
    curves = [
        Curve("reward", "plain", "rl_1", 0, [(0.0, 0.0), (3.0, 0.5)]),
        Curve("reward", "plain", "rl_2", 4, [(0.0, 1.0), (2.0, 0.0)]),
    ]
    fit = Curve("fit", "", "rl_1", 0, [(0.0, 0.25), (4.0, 0.5)])
    svg = str(round_chart("reward", curves, {"rl_1": 4, "rl_2": 4}, fits=[fit]))
    # 8 rounds are 296 pixels; names stand above, so 1 … 0 is from y = 20 to 166.
    first, second = re.findall(r'class="curve plain" points="(.*?)"', svg)
    assert (first, second) == ("52.0,166.0 163.0,93.0", "200.0,20.0 274.0,166.0")
    assert '<line class="switch" x1="200.0" y1="2.0" x2="200.0" y2="166.0"/>' in svg
    assert _points(svg, "fit ") == ["52.0,129.5", "200.0,93.0"]
    # A tooltip has the round of its stage.
    assert "<title>reward, rl_2 round 2: 0</title>" in svg
    assert re.findall(r">(rl_\d)</text>", svg) == ["rl_1", "rl_2"]


def test_a_single_stage_needs_no_name():
    svg = str(round_chart("reward", [Curve("r", "plain", "rl", 0, [(0.0, 1.0)])], {"rl": 4}))
    assert "switch" not in svg and ">rl</text>" not in svg


def test_a_tenth_is_as_far_as_a_tenth_of_it_on_a_logarithmic_axis():
    points = [(0.0, 1e-6), (2.0, 1e-5), (4.0, 1e-4)]
    curve = Curve("largest", "plain", "rl_1", 0, points)
    svg = str(round_chart("mismatch", [curve], {"rl_1": 4}, Axis(logarithmic=True)))
    assert _points(svg, "curve plain") == ["52.0,166.0", "200.0,88.0", "348.0,10.0"]


def test_shares_have_an_axis_of_their_own():
    tokens = Curve("tokens", "left", "rl_1", 0, [(0.0, 100.0), (4.0, 50.0)])
    ended = Curve("ended", "right", "rl_1", 0, [(0.0, 25.0), (4.0, 100.0)])
    svg = str(round_chart("lengths", [tokens], {"rl_1": 4}, shares=[ended]))
    assert _points(svg, "curve left") == ["52.0,10.0", "314.0,88.0"]
    assert _points(svg, "curve right") == ["52.0,127.0", "314.0,10.0"]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.0, 2.0, 4.0, 10.0, 0.0], [0.0, 2.0, 16 / 3, 14 / 3, 0.0]),
        # A line stays a line up to its ends.
        ([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0]),
        ([5.0], [5.0]),
    ],
)
def test_the_moving_mean_has_as_many_neighbours_on_both_sides(values, expected):
    found = moving_mean(list(enumerate(values)), 3)
    assert [y for _, y in found] == pytest.approx(expected)


def test_a_noisy_curve_shows_its_points_thin_and_their_mean_bold():
    points = [(0.0, 0.0), (1.0, 1.0), (2.0, 0.5)]
    curve = Curve("reward", "plain", "rl_1", 0, points, window=3)
    svg = str(round_chart("reward", [curve], {"rl_1": 2}))
    assert _points(svg, "raw plain") == ["52.0,166.0", "200.0,10.0", "348.0,88.0"]
    assert _points(svg, "curve plain") == ["52.0,166.0", "200.0,88.0", "348.0,88.0"]
    assert "<title>reward, rl_1 round 1: 1</title>" in svg


def test_many_rounds_are_averaged():
    curve = Curve("reward", "plain", "rl_2", 100, [(float(i), i % 2) for i in range(200)])
    svg = str(round_chart("reward", [curve], {"rl_1": 100, "rl_2": 200}))
    titles = re.findall("<title>(.*?)</title>", svg)
    assert (len(titles), titles[0]) == (40, "reward, rl_2 rounds 0–4: 0.4")


def test_bars_stand_on_each_other():
    columns = [Column("rl_1 round 0", 0, 1, [1.0, 3.0]), Column("rl_1 round 3", 3, 4, [0.0, 2.0])]
    parts = [("sample", "a"), ("train", "b")]
    svg = str(stacked_chart("seconds", parts, columns, {"rl_1": 4}, " s"))
    boxes = re.findall(r'<rect class="(.)" x="(.*?)" y="(.*?)" width="(.*?)" height="(.*?)">', svg)
    # 4 s are 156 pixels, and a round is 74 wide; a part of 0 is not drawn.
    assert boxes == [
        ("a", "52.0", "127.0", "73.4", "39.0"),
        ("b", "52.0", "10.0", "73.4", "117.0"),
        ("b", "274.0", "88.0", "73.4", "78.0"),
    ]
    assert "<title>rl_1 round 0: train 3 s</title>" in svg


def test_shares_that_add_up_to_a_little_more_than_100_end_at_100():
    columns = [Column("rl_1 round 0", 0, 1, [100 / 3, 100 / 3, 100 / 3 + 1e-9])]
    svg = str(stacked_chart("outcomes", [(x, x) for x in "abc"], columns, {"rl_1": 1}, " %"))
    assert ">100 %</text>" in svg and ">125 %</text>" not in svg


def test_equal_values_can_be_drawn():
    curve = Curve("accuracy", "plain", "rl_1", 0, [(0.0, 100.0), (4.0, 100.0)])
    svg = str(round_chart("accuracy", [curve], {"rl_1": 4}, Axis(" %", least=None, most=100.0)))
    assert _points(svg, "curve plain") == ["52.0,10.0", "348.0,10.0"]


@pytest.mark.parametrize(
    ("rounds", "ticks"), [(1, [0, 1]), (2, [0, 1, 2]), (10, [0, 5, 10]), (38, [0, 10, 20, 30, 40])]
)
def test_rounds_are_whole_numbers(rounds, ticks):
    assert round_ticks(rounds) == ticks
