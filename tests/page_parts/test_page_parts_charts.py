from __future__ import annotations

import math
import re

import pytest

from pcl_reasoner.page_parts import charts, drawing
from pcl_reasoner.page_parts.texts import HEAD, TAIL, cut
from pcl_reasoner.report.page import duration, number, points


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0, 1, [0, 0.25, 0.5, 0.75, 1]),
        (0, 515, [0, 200, 400, 600]),
        (-0.3, 0.4, [-0.4, -0.2, 0, 0.2, 0.4]),
        (0, 1e-4, [0, 2.5e-5, 5e-5, 7.5e-5, 1e-4]),
        (3, 3, [3, 4, 5, 6]),
        (0, 0, [0, 0.25, 0.5, 0.75, 1]),
    ],
)
def test_ticks_are_round_and_cover_the_values(low, high, ticks):
    assert drawing.nice_ticks(low, high) == pytest.approx(ticks)


def test_bars_stand_on_the_axis_and_reach_their_count():
    svg = charts.histogram("lengths", [0, 10, 20], [1, 4], "tokens")
    bars = re.findall(r'<rect class="bar" x="(.*?)" y="(.*?)" width=".*?" height="(.*?)">', svg)
    left, right = ([float(value) for value in bar] for bar in bars)
    # 156 pixels are 4 records; the axis is at y = 166.
    assert right[1:] == [10.0, 156.0]
    assert left[1:] == [127.0, 39.0]
    assert (left[0], right[0]) == (52.0, 52.0 + 296 / 2)
    assert "<title>10–20: 4</title>" in svg


def test_a_long_curve_shows_means_of_neighbours():
    values = [(float(i), float(i % 2)) for i in range(1, 201)]
    svg = charts.line_chart("loss", [charts.Series("loss", "plain", values)])
    titles = re.findall("<title>(.*?)</title>", svg)
    assert len(titles) == 40
    assert titles[0] == "loss, step 1–5: 0.6"
    assert titles[1] == "loss, step 6–10: 0.4"
    assert svg.count("<polyline") == 2


def test_a_short_curve_shows_every_point():
    series = charts.Series("loss", "plain", [(1.0, 0.0), (2.0, 1.0)])
    svg = charts.line_chart("loss", [series])
    # x ticks 1 … 2: the first step at the left edge; y ticks 0 … 1.
    assert '<polyline class="curve plain" points="52.0,166.0 348.0,10.0"/>' in svg


def test_whiskers_reach_the_ends_of_the_interval():
    svg = charts.interval_chart("scores", [charts.Estimate("after", "after", 0.5, 0.25, 0.75)])
    # 238 pixels from 0 to 100 %, starting at 104.
    assert '<line class="whisker after" x1="163.5" y1="17.0" x2="282.5" y2="17.0"/>' in svg
    assert 'cx="223.0"' in svg


def test_names_are_escaped():
    estimate = charts.Estimate("<b>&", "after", 0.5, 0.4, 0.6)
    svg = charts.interval_chart('"><script>', [estimate])
    assert "<script>" not in svg and "<b>" not in svg
    assert "&lt;b&gt;&amp;" in svg


def test_a_long_response_keeps_its_head_and_its_answer():
    text = "a" * HEAD + "b" * 1000 + "c" * TAIL
    found = cut(text)
    assert found == {"response": "a" * HEAD, "tail": "c" * TAIL, "left_out": 1000}
    assert cut("a" * (HEAD + TAIL))["left_out"] == 0


def test_figures_as_people_read_them():
    assert number(2044407) == "2\u202f044\u202f407"
    assert number(0.97312) == "0.9731"
    assert number(None) == "–"
    assert points(-0.0123) == "\u22121.2"
    assert (duration(12.34), duration(90), duration(7500)) == ("12.3 s", "2 min", "2 h 5 min")


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (1, 1, [1, 2]),
        (1, 8, [1, 2, 5, 10]),
        (1, 2896, [1, 10, 100, 1000, 5000]),
        (0.03, 0.04, [0.02, 0.05, 0.1]),
        (3, 70, [2, 5, 10, 20, 50, 100]),
    ],
)
def test_logarithmic_ticks_cover_the_values(low, high, ticks):
    assert drawing.log_ticks(low, high) == pytest.approx(ticks)


def test_one_record_can_be_seen_beside_a_thousand():
    svg = charts.histogram("perplexity", [1, 10, 100], [999, 1], "perplexity", 10, True)
    heights = re.findall(r'<rect class="bar" .*?height="(.*?)">', svg)
    # The axis ends at 1000: 156 pixels are log10(1001); a count is at log10(1 + count).
    pixels = [156 * math.log10(1 + count) / math.log10(1001) for count in (999, 1)]
    assert [float(height) for height in heights] == pytest.approx(pixels, abs=0.06)
    # Perplexity 10 is in the middle of 1 … 100, which is 284 pixels wide and begins at 52.
    assert '<line class="threshold" x1="194.0"' in svg


def test_a_chart_with_two_axes_has_a_scale_for_each():
    length = charts.Series("tokens", "correct", [(0.0, 100.0), (10.0, 50.0)])
    ended = charts.Series("ended", "incorrect", [(0.0, 0.25), (10.0, 1.0)])
    svg = charts.two_axis_chart("shift", length, ended)
    # x from 52 to 314; y from 166 up to 10. 100 tokens and 100 % are at the top.
    assert '<polyline class="curve correct" points="52.0,10.0 314.0,88.0"/>' in svg
    assert '<polyline class="curve incorrect" points="52.0,127.0 314.0,10.0"/>' in svg
    assert ">100 %</text>" in svg


def test_long_names_of_scores_get_room():
    estimate = charts.Estimate("livecodebench_v6 after", "after", 0.0, 0.0, 0.1)
    svg = charts.interval_chart("scores", [estimate])
    # 22 letters of 6.2 pixels, and 16 for the distance.
    assert 'cx="152.4"' in svg
