"""benchmarks/false_stops.py: its rule is decide()'s, and what it counts, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from false_stops import SETTINGS, agrees, cells, curves, drawn, fits, shifts, stops

from pcl_reasoner.rounds.plateau import Plateau, decide


def test_all_runs_at_once_stop_where_the_rule_stops_each() -> None:
    setting = SETTINGS["laptop"]
    rules = Plateau(window=5, min_gain=0.03, min_rounds=10)
    shares = drawn(curves(setting, 16)["slows"], 24, setting, runs=12, seed=0)
    fit = fits(shares, rules.window)
    stopped = stops(fit, rules, 2)
    assert len(set(stopped.tolist())) > 3
    assert agrees(shares, setting.n, stopped, rules, 2)
    assert not agrees(shares, setting.n, stopped + 1, rules, 2)
    kinds = ["code"] * 24
    lines = [
        {"round": 2 * probe, "n": 8, "kinds": kinds, "correct": (one * 8).tolist()}
        for probe, one in enumerate(shares[3])
    ]
    found = decide(lines, rules)
    assert (fit[0][3, -1], fit[1][3, -1]) == pytest.approx((found.gain, found.se), abs=1e-6)


def test_a_stop_is_false_while_the_next_window_gains() -> None:
    # Probes 0 … 7 gain 2 points each, then nothing. From probe 6 two probes gain 4 points, from
    # probe 7 they gain 2, from probe 8 nothing: probe 7 is the first right one at 3 points.
    curve = 0.5 + 0.02 * np.minimum(np.arange(20), 8)
    rules = Plateau(window=3, min_gain=0.03, min_rounds=0)
    share, late = cells(curve, np.array([3, 6, 7, 8, 9, 10, 10, 10, 10, 18]), rules, 1)
    # Of 10 runs 2 stop too early; the others are 0, 1, 2, 3, 3, 3, 3 and 11 probes late, and the
    # last one did not stop within 18 probes.
    assert (share, late) == ("20.0%", "3 3")
    assert cells(curve, np.array([18, 18]), rules, 1) == ("0.0%", ">11 >11")
    assert cells(np.full(20, 0.5), np.array([2, 5]), rules, 1) == ("-", "0 0")


def test_the_drawn_accuracy_follows_the_curve() -> None:
    setting = SETTINGS["cluster"]
    curve = curves(setting, 30)["0.5"]
    found = drawn(curve, 2000, setting, runs=4, seed=1).mean((0, 2))
    assert found == pytest.approx(curve, abs=0.02)
    assert shifts(np.array([0.5]), 1.0) == pytest.approx([0.0], abs=0.05)
