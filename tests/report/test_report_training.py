from __future__ import annotations

import pytest

from pcl_reasoner.page_parts.records import StageRecord
from pcl_reasoner.report.page import panels
from pcl_reasoner.report.training import curve, digest, pattern_shift, warnings_about


def _record(metrics, loss="opg"):
    manifest = {"stage": "train", "counts": {}, "identity": {"config": {"loss": loss}}}
    return StageRecord("r", "train", manifest, {"metrics": metrics})


def _step(p, correct=1, incorrect=0, **more):
    return {
        "loss": 0.5,
        "correct_p": p,
        "correct_count": correct,
        "incorrect_count": incorrect,
        **more,
    }


def test_p_of_correct_answers_is_weighted_by_responses():
    # First tenth: two steps, (1·0.2 + 3·0.6) / 4 = 0.5; a step without a correct answer has no p.
    middle = [_step(0.9)] * 16
    last = [_step(None, correct=0, incorrect=2), _step(0.7)]
    found = digest(_record([_step(0.2), _step(0.6, correct=3), *middle, *last]))
    assert found["figures"]["correct_p"] == {
        "first": pytest.approx(0.5),
        "last": pytest.approx(0.7),
    }
    assert (found["correct"], found["incorrect"]) == (1 + 3 + 16 + 0 + 1, 2)
    assert found["correct_share"] == pytest.approx(21 / 23)


def test_exactly_half_correct_and_p_unchanged_is_no_warning():
    assert warnings_about(digest(_record([_step(0.5, 4, 4)] * 20))) == []


def test_each_reason_to_worry_is_named():
    steps = [_step(0.6, 4, 5, overflow=1)] + [_step(0.5, 4, 5, overflow=0)] * 9
    share, fall, overflow = warnings_about(digest(_record(steps)))
    assert "only 44.4%" in share and "(40 correct, 50 incorrect)" in share
    assert "from 0.6000" in fall and "to 0.5000" in fall
    assert "1 of 10 steps" in overflow


def test_few_correct_responses_are_no_worry_where_only_those_are_trained_on():
    assert warnings_about(digest(_record([_step(0.5, 4, 5)] * 10, loss="rft"))) == []


def test_supervised_training_is_not_graded():
    found = digest(_record([{"step": 1, "loss": 2.0, "correct_count": 8, "correct_p": None}]))
    assert found["correct_share"] is None
    assert warnings_about(found) == []


def test_a_curve_leaves_out_what_cannot_be_drawn():
    steps = [{"step": 1, "loss": 2.0}, {"step": 2, "loss": float("nan")}, {"step": 3, "loss": None}]
    assert curve(_record([*steps, {"step": 4, "loss": 1.0}]), "loss") == [(1.0, 2.0), (4.0, 1.0)]


def test_a_panel_is_there_where_its_figures_are():
    steps = [
        {
            "step": step,
            "loss": 0.5,
            "correct_weight": 0.2,
            "incorrect_entropy": 0.3,
            "no_advantage": None,
        }
        for step in (1, 2)
    ]
    probe = [{"step": 0, "accuracy": 0.25, "stop_ratio": 1.0, "mean_length": 41.0}]
    record = StageRecord("r", "train", {"stage": "train"}, {"metrics": steps, "probe": probe})
    found = {title: (legend, str(chart)) for title, legend, chart in panels(record)}
    assert list(found) == [
        "Loss",
        "Gradient weight of correct and incorrect responses",
        "Entropy of a token, nats",
        "Probe: correct, and ended of itself",
        "Probe: tokens of an answer",
    ]
    # Incorrect responses have no weight here, so their colour is not explained.
    assert found["Gradient weight of correct and incorrect responses"][0] == [
        ("correct", "correct")
    ]
    assert "correct, step 0: 0.25" in found["Probe: correct, and ended of itself"][1]
    assert "tokens, step 0: 41" in found["Probe: tokens of an answer"][1]


def _probed(lengths, ended, loss="sft"):
    manifest = {"stage": "train", "counts": {}, "identity": {"config": {"loss": loss}}}
    pairs = enumerate(zip(lengths, ended, strict=True))
    probe = [{"step": 10 * i, "mean_length": a, "stop_ratio": b} for i, (a, b) in pairs]
    metrics = [{"step": 1, "loss": 2.0, "correct_count": 8, "correct_p": 0.4}]
    return StageRecord("r", "train", manifest, {"metrics": metrics, "probe": probe})


def test_the_pattern_shift_compares_the_first_third_with_the_last():
    # Seven probes: thirds of two.
    record = _probed([140, 100, 60, 50, 45, 44, 46], [0.2, 0.4, 0.9, 1, 1, 1, 0.5])
    assert pattern_shift(record) == {
        "probes": 7,
        "third": 2,
        "mean_length": {"first": 120.0, "last": 45.0},
        "stop_ratio": {"first": pytest.approx(0.3), "last": 0.75},
    }
    # The figure of the shift replaces the panel of the length.
    assert [title for title, _, _ in panels(record)][-1] == "Probe: correct, and ended of itself"


def test_there_is_no_pattern_shift_without_three_probes_of_supervised_training():
    assert pattern_shift(_probed([140, 60], [0.2, 1])) is None
    assert pattern_shift(_probed([140, 60, 50], [0.2, 1, 1], loss="opg")) is None


def test_responses_of_supervised_training_are_not_called_correct():
    found = digest(_probed([140, 60, 50], [0.2, 1, 1]))
    assert (found["correct"], found["correct_share"]) == (None, None)
    assert found["figures"]["correct_p"]["last"] == 0.4
