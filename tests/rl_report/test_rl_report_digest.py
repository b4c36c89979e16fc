from __future__ import annotations

import json

import pytest
from rl_artifact import probe, response, rl_record, round_row, write_rl

from pcl_reasoner.page_parts.records import StageRecord
from pcl_reasoner.rl_report.digest import digests, held_out, warnings_about
from pcl_reasoner.rl_report.reading import read_rl

KINDS = ["math", "math", "code", "code"]
FIRST, LAST = probe(0, KINDS, [1, 3, 0, 2]), probe(4, KINDS, [3, 4, 2, 2])


def test_the_first_probe_is_compared_with_the_last():
    middle = probe(2, KINDS, [0, 0, 0, 0])
    lines = held_out([FIRST, middle, LAST])
    everything, math, code = lines
    assert [one["kind"] for one in lines] == ["all", "math", "code"]
    assert everything["problems"] == 4
    # Shares 1/4 3/4 0 1/2: squares of the deviations from 3/8 add up to 0.3125.
    error = (0.3125 / 3 / 4) ** 0.5
    assert everything["first"] == {"round": 0, "accuracy": 0.375, "se": pytest.approx(error)}
    # Differences 1/2 1/4 1/2 0: squares of the deviations from 5/16 add up to 0.171875.
    assert everything["gain"] == 0.3125
    assert everything["gain_se"] == pytest.approx((0.171875 / 3 / 4) ** 0.5)
    # 1/4 and 3/4: the standard deviation is sqrt(1/8), over sqrt(2).
    assert math["first"] == {"round": 0, "accuracy": 0.5, "se": pytest.approx(0.25)}
    assert math["last"] == {"round": 4, "accuracy": 0.875, "se": pytest.approx(0.125)}
    assert (math["gain"], math["gain_se"]) == (0.375, pytest.approx(0.125))
    assert code["last"] == {"round": 4, "accuracy": 0.5, "se": 0.0}


def test_a_single_problem_has_no_error():
    everything, chat = held_out([probe(0, ["chat"], [2.5])])
    assert (chat["kind"], chat["first"]["accuracy"], chat["first"]["se"]) == ("chat", 0.625, None)
    assert everything["gain_se"] is None
    assert held_out([]) == []


def test_a_stage_is_summed_over_its_rounds():
    rounds = [
        round_row(0, {"math": (8, 4.0)}, overlong=1, no_advantage=2, mismatch_max=2e-5),
        round_row(1, {"math": (8, 6.0)}, failed=3, groups_left_out=1, loss=None, mismatch_abs=None),
    ]
    plateau = {"stopped": "plateau", "rounds": 2, "gain": 0.004, "se": 0.002,
               "fit": {"rounds": [0, 1, 2], "intercept": 0.5, "slope": 0.002}}  # fmt: skip
    tests = {
        "rounds": [
            {"round": 0, "outcomes": {"correct": 3, "no_code": 1}},
            {"round": 1, "outcomes": {"correct": 2, "incorrect": 4}},
        ],
        "failures": {"wrong": 4},
    }
    config = {"overlong": "masked", "off_policy": "refused", "plateau": {"min_gain": 0.01}}
    record = rl_record("rl_1", rounds, plateau=plateau, config=config, tests=tests)
    (found,) = digests([record, StageRecord("am", "rl_2", None)])
    assert (found["key"], found["rounds"], found["updates"]) == ("am/rl_1", 2, 1)
    assert (found["ended"], found["gain"], found["gain_se"]) == ("plateau", 0.004, 0.002)
    assert (found["window"], found["min_gain"]) == ([0, 1, 2], 0.01)
    assert (found["responses"], found["failed"], found["groups_left_out"]) == (16, 3, 1)
    assert (found["overlong"], found["no_advantage"], found["tokens"]) == (1, 2, 160)
    assert (found["mismatch_abs"], found["mismatch_max"]) == (1e-6, 2e-5)
    assert found["overlong_meaning"] == "left out of its group"
    assert found["outcomes"] == {"correct": 5, "incorrect": 4, "no_code": 1}
    assert found["held_out"] == []


def test_off_policy_sampling_is_a_warning_that_names_the_values():
    sampling = {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0, "repetition_penalty": 1}
    row = [round_row(0, {"math": (1, 1.0)})]
    allowed = rl_record("rl_1", row, config={**sampling, "off_policy": "allowed"})
    refused = rl_record("rl_2", row, config={"off_policy": "refused", "shuffle_rewards": True})
    first, second = warnings_about([allowed, refused])
    assert first.startswith("am/rl_1: off_policy is allowed.")
    assert "temperature 0.6, top_k 20, top_p 0.95" in first
    assert second.startswith("am/rl_2: shuffle_rewards")


def test_the_tables_of_an_artifact_are_counted(tmp_path):
    wrong = json.dumps({"passed": 1, "total": 2, "case": 1, "reason": "wrong", "text": "7"})
    rows = [
        response(("c1", 0), 0, 1.0),
        response(("c1", 1), 0, -1.0, detail=wrong),
        response(("c2", 0), 1, -1.0, detail=wrong),
        response(("c2", 1), 1, None, verdict="no_code", detail=None),
        response(("m1", 0), 1, 0.0, verdict="correct"),
    ]
    visits = [("c1", 0), ("c2", 1), ("m1", 1), ("c1", 1)]
    write_rl(tmp_path, [round_row(0, {"code": (2, 1.0)}), round_row(1, {})], rows, visits)
    found = read_rl(tmp_path)["rl"]
    assert found["rounds"][0]["kinds"] == {
        "code": {"responses": 2.0, "reward": 1.0, "correct": 1.0}
    }
    assert found["tests"]["rounds"] == [
        {"round": 0, "outcomes": {"correct": 1, "incorrect": 1}},
        {"round": 1, "outcomes": {"incorrect": 1, "no_code": 1}},
    ]
    assert found["tests"]["failures"] == {"wrong": 2}
    # c1 was asked in two rounds.
    assert found["asked"] == {"math": 1, "code": 2}
    (tmp_path / "other").mkdir()
    assert read_rl(tmp_path / "other") == {}
