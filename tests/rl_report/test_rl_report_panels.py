from __future__ import annotations

import re

import pytest
from rl_artifact import probe, rl_record, round_row

from pcl_reasoner.page_parts.records import StageRecord
from pcl_reasoner.rl_report.panels import length_panels, rl_panels

KINDS = ["math", "math", "code", "code"]


def _two_stages(**second):
    """Four rounds of math and code, and then two of math and chat."""
    first = [
        round_row(i, {"math": (4, reward), "code": (2, 1.0)}, overlong=i, no_advantage=3)
        for i, reward in enumerate([1.0, 2.0, 3.0, 4.0])
    ]
    plateau = {"fit": {"rounds": [0, 2, 4], "intercept": 0.5, "slope": 0.05}}
    probes = [probe(0, KINDS, [1, 3, 0, 2]), probe(4, KINDS, [3, 4, 2, 2])]
    tests = {
        "rounds": [{"round": 0, "outcomes": {"correct": 1, "passed_some": 1, "timeout": 2}}],
        "failures": {},
    }
    files = {"plateau": plateau, "probe": probes, "tests": tests}
    seconds = [
        {"round": 0, "sample": 2.0, "train": 1.0},
        {"round": 3, "sample": 4.0},
        {"round": 3, "train": 2.5},
    ]
    later = [round_row(i, {"math": (4, 2.0), "chat": (4, 3.0)}) for i in range(2)]
    return [
        rl_record("rl_1", first, **files, seconds=seconds),
        rl_record("rl_2", later, **second),
    ]


def _panel(records, title):
    (found,) = [one for one in [*rl_panels(records), *length_panels(records)] if one.title == title]
    return found


def _titles(panel):
    return re.findall("<title>(.*?)</title>", str(panel.chart))


def test_rewards_are_means_over_the_responses_of_a_kind():
    panel = _panel(_two_stages(), "Mean reward of trained problems, by kind")
    assert [name for name, _ in panel.legend] == ["math", "code", "chat"]
    titles = _titles(panel)
    assert titles[:4] == [f"math, rl_1 round {i}: {(i + 1) / 4:g}" for i in range(4)]
    assert "math, rl_2 round 1: 0.5" in titles and "chat, rl_2 round 0: 0.75" in titles
    assert "chat, rl_1 round 0" not in "".join(titles)
    # Four of six rounds: 2/3 of 296 pixels from x = 52.
    assert 'class="switch" x1="249.3"' in str(panel.chart)


def test_the_held_out_accuracy_has_its_error_and_its_fit():
    panel = _panel(_two_stages(), "Held-out accuracy")
    assert _titles(panel) == [
        "all held-out problems, rl_1 round 0: 37.5",
        "all held-out problems, rl_1 round 4: 68.75",
    ]
    band = re.search(r'class="band correct" points="(.*?)"', str(panel.chart))
    low, _, _, high = (float(corner.split(",")[1]) for corner in band[1].split())
    # 20 … 100 % are 146 pixels; the error is sqrt(0.3125 / 3 / 4).
    assert (low - high) / 146 * 80 == pytest.approx(200 * (0.3125 / 3 / 4) ** 0.5, abs=0.1)
    # From 50 % in round 0 to 70 % in round 4.
    fit = re.search(r'class="fit " points="(.*?)"', str(panel.chart))
    assert fit[1] == "52.0,111.2 249.3,74.8"
    assert ("fit", "legend-fit") in panel.legend


def test_kinds_have_curves_of_their_own():
    titles = _titles(_panel(_two_stages(), "Held-out accuracy, by kind"))
    assert titles[:2] == ["math, rl_1 round 0: 50", "math, rl_1 round 4: 87.5"]
    assert titles[2:] == ["code, rl_1 round 0: 25", "code, rl_1 round 4: 50"]


def test_shares_are_of_answered_and_of_compared_responses():
    records = _two_stages()
    row = records[0].files["rl"]["rounds"][2]
    row |= {"failed": 2, "segments": 5}
    titles = _titles(_panel(records, "Share of responses that are overlong, or have no advantage"))
    # 2 of 6 − 2 answered responses are overlong; 3 of 5 have no advantage.
    assert "overlong, rl_1 round 2: 50" in titles
    assert "no advantage, rl_1 round 2: 60" in titles


def test_a_round_without_a_mismatch_has_no_point():
    records = _two_stages()
    records[0].files["rl"]["rounds"][1]["mismatch_abs"] = 0.0
    records[0].files["rl"]["rounds"][2]["mismatch_abs"] = None
    titles = _titles(_panel(records, "Mismatch of trainer and sampler"))
    rounds = [title for title in titles if title.startswith("mean, rl_1")]
    assert rounds == ["mean, rl_1 round 0: 1e-06", "mean, rl_1 round 3: 1e-06"]


def test_seconds_of_a_round_are_added_up_and_missing_rounds_are_counted():
    panel = _panel(_two_stages(), "Seconds of a round, by phase")
    assert _titles(panel) == [
        "rl_1 round 0: sample and grade 2 s",
        "rl_1 round 0: wait for the update 1 s",
        "rl_1 round 3: sample and grade 4 s",
        "rl_1 round 3: wait for the update 2.5 s",
    ]
    assert "4 of 6 rounds have no bar" in panel.note
    whole = [{"round": i, "sample": 1.0} for i in range(4)]
    records = [rl_record("rl_1", _two_stages()[0].files["rl"]["rounds"], seconds=whole)]
    assert "no bar" not in _panel(records, "Seconds of a round, by phase").note


def test_outcomes_of_tests_are_shares():
    panel = _panel(_two_stages(), "Outcomes of tests")
    assert _titles(panel) == [
        "rl_1 round 0: correct 25 %",
        "rl_1 round 0: passed some 25 %",
        "rl_1 round 0: not graded 50 %",
    ]
    assert [name for name, _ in panel.legend] == ["correct", "passed some", "not graded"]


def test_many_rounds_share_a_bar():
    rounds = [round_row(i, {"math": (1, 1.0)}) for i in range(161)]
    seconds = [{"round": i, "sample": float(i)} for i in range(161)]
    titles = _titles(
        _panel([rl_record("rl", rounds, seconds=seconds)], "Seconds of a round, by phase")
    )
    # 161 rounds in at most 80 bars are 54 bars of 3 rounds: the mean of 0, 1 and 2, …
    assert len(titles) == 54
    assert titles[0] == "rl rounds 0–2: sample and grade 1 s"
    assert titles[-1] == "rl rounds 159–160: sample and grade 160 s"


def test_lengths_are_of_held_out_and_of_trained_problems():
    records = _two_stages()
    records[0].files["rl"]["rounds"][1] |= {"failed": 1, "tokens": 100, "stopped": 4}
    titles = _titles(
        _panel(records, "Held-out problems: length of an answer, and share that ended")
    )
    assert titles == [
        "tokens, rl_1 round 0: 50",
        "tokens, rl_1 round 4: 54",
        "ended, rl_1 round 0: 75",
        "ended, rl_1 round 4: 75",
    ]
    titles = _titles(
        _panel(records, "Trained problems: length of a response, and share that ended")
    )
    # 5 of 6 responses were answered.
    assert "tokens, rl_1 round 1: 20" in titles and "ended, rl_1 round 1: 80" in titles


def test_without_held_out_problems_their_charts_are_left_out():
    titles = [one.title for one in rl_panels(_two_stages()[1:])]
    assert titles == [
        "Mean reward of trained problems, by kind",
        "Share of responses that are overlong, or have no advantage",
        "Mismatch of trainer and sampler",
    ]


def test_nothing_is_shown_without_a_finished_stage():
    records = [StageRecord("am", "rl_1", None), StageRecord("am", "train", {"stage": "train"})]
    assert rl_panels(records) == [] and length_panels(records) == []
