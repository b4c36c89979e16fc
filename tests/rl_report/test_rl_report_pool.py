from __future__ import annotations

from rl_artifact import rl_record, round_row

from pcl_reasoner.page_parts.records import StageRecord
from pcl_reasoner.rl_report.pool import pool_chart, pool_rows

ROUND = [round_row(0, {"math": (1, 1.0)})]


def _stage(name, kind, origins, counts, **files):
    return StageRecord("am", name, {"stage": kind, "origins": origins, "counts": counts}, files)


def _rates(zero, counts, one):
    return {"zero": zero, "edges": [0.0, 0.5, 1.0], "counts": counts, "one": one}


def _records():
    """10 of math and 6 of code are rated; a mix takes 2 of 5 of chat and adds instructions."""
    rates = {"math": _rates(2, [3, 4], 1), "code": _rates(1, [2, 2], 1)}
    info = {"rates": rates, "not_filtered": {"chat": 5}}
    kept = {"math": 7, "code": 4, "chat": 5}
    solved = {
        "math": {"before": 7, "removed": 3, "kept": 4, "not_seen": 1},
        "code": {"before": 4, "removed": 0, "kept": 4, "not_seen": 0},
        "chat": {"before": 5, "removed": 0, "kept": 5, "not_seen": 5},
    }
    mixed = {"chat": 2, "code": 4, "instruction": 3, "math": 4}
    dropped = {"never_solved": 3, "always_solved": 2}
    return [
        _stage("revise", "revise", {}, {"kept": 21}, kinds={"math": 10, "code": 6, "chat": 5}),
        _stage(
            "pass_rate",
            "pass_rate",
            {"problems": "am/revise"},
            {"kept": 16, "dropped": dropped, "info": info},
            kinds=kept,
        ),
        rl_record("rl_1", ROUND, config={"kinds": ["math", "code"]}, asked={"math": 6, "code": 4},
                  origins={"problems": "am/pass_rate"}),
        _stage(
            "solved",
            "solved",
            {"problems": "am/pass_rate", "rounds": "am/rl_1"},
            {"kept": 13, "dropped": {"solved_always": 3}, "info": {"kinds": solved}},
        ),
        _stage("unique_instruction", "unique", {}, {"kept": 3}, kinds={"instruction": 3}),
        _stage(
            "mix_2",
            "mix",
            {"problems.new": "am/unique_instruction", "problems.solved": "am/solved"},
            {"kept": 13, "dropped": {"not_taken": 3}, "info": {"kinds": mixed}},
        ),
        rl_record("rl_2", ROUND, config={"kinds": None}, asked={"math": 1},
                  origins={"problems": "am/mix_2"}),
    ]  # fmt: skip


def _cells(row):
    return {
        kind: (one["kept"], one["removed"], one["added"], one["asked"])
        for kind, one in row["kinds"].items()
    }


def test_the_problems_are_followed_from_the_pass_rate_to_the_last_stage():
    rows = pool_rows(_records())
    found = {row["name"]: _cells(row) for row in rows}
    assert list(found) == ["pass_rate", "rl_1", "solved", "mix_2", "rl_2"]
    # 2 + 3 + 4 + 1 of math were rated, and 7 were kept.
    assert found["pass_rate"] == {
        "math": (7, 3, 0, None),
        "code": (4, 2, 0, None),
        "chat": (5, 0, 0, None),
    }
    assert found["rl_1"] == {"math": (7, 0, 0, 6), "code": (4, 0, 0, 4)}
    assert found["solved"]["math"] == (4, 3, 0, None)
    assert found["mix_2"] == {
        "math": (4, 0, 0, None),
        "code": (4, 0, 0, None),
        "instruction": (3, 0, 3, None),
        "chat": (2, 3, 0, None),
    }
    # Compared with rl_1: 3 of math are gone, two kinds are new.
    assert found["rl_2"] == {
        "math": (4, 3, 0, 1),
        "code": (4, 0, 0, 0),
        "instruction": (3, 0, 3, 0),
        "chat": (2, 0, 2, 0),
    }
    assert rows[0]["dropped"] == {"never_solved": 3, "always_solved": 2}


def test_without_a_pass_rate_the_problems_begin_where_they_were_asked():
    records = [
        _stage("mix", "mix", {}, {"kept": 9, "info": {"kinds": {"math": 9}}}),
        _stage("check", "check_tests", {"problems": "am/mix"}, {"kept": 8}),
        rl_record("rl", ROUND, asked={"math": 5}, origins={"problems": "am/check"}),
    ]
    rows = pool_rows(records)
    assert [(row["name"], _cells(row)) for row in rows] == [
        ("check", {"math": (8, 0, 0, None)}),
        ("rl", {"math": (8, 0, 0, 5)}),
    ]


def test_a_run_without_on_policy_training_has_no_pool():
    assert pool_rows(_records()[:2]) == []
    assert pool_chart([]) is None


def test_a_bar_is_divided_by_kind():
    svg = str(pool_chart(pool_rows(_records())))
    assert "<title>rl_1: math 7.0 </title>" in svg
    assert "11 problems" in svg and "13 problems" in svg
