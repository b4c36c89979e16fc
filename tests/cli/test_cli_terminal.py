"""What is said while a run goes on: the headline, the pace, and the live view."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
import tiny_stages

from pcl_reasoner.cli import terminal

ROOT = Path(__file__).resolve().parents[2]


def test_headline_says_where_once(call, tiny, tmp_path) -> None:
    said = "title: LAPTOP, a small one"
    (tmp_path / "here.yaml").write_text(tiny_stages.LAUNCH.replace("title: this machine", said))
    assert call("status", *tiny)[1].startswith("LAPTOP: a small one\n")


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (243, "4 min 3 s"),
        (4320, "1 h 12 min"),
    ],
)
def test_duration(seconds: float, said: str) -> None:
    assert terminal.duration(seconds) == said


def test_pace_counts_from_where_the_stage_went_on() -> None:
    """At 1000 when it went on; 100 more in 10 s are 10/s, and 900 are left: 90 s."""
    pace = terminal.Pace(1000, 50.0, (5000, "problems"))
    assert pace.describe(1000, 2000, "rows", now=50.0) == "1,000/2,000 rows"
    said = pace.describe(1100, 2000, "rows", now=60.0)
    assert said == "1,100/2,000 rows, 10.0 rows/s, 1 min 30 s left"
    assert pace.describe(1001, None, "steps", now=70.0) == "1,001 steps, 20 s each"


def test_pace_begins_again_with_what_is_counted(capsys, monkeypatch) -> None:
    """2 problems/s at first; then 3 of 6 others in 10 s, not 3 after 20 in 20 s."""
    monkeypatch.setattr(terminal, "SECONDS_BETWEEN_LOG_LINES", 0.0)
    view = terminal.LogView()
    for now, done, total in ((0.0, 0, 20), (10.0, 20, 20), (10.0, 0, 6), (20.0, 3, 6)):
        monkeypatch.setattr(terminal.time, "monotonic", lambda now=now: now)
        view.update(done, total, "problems")
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == ": 20/20 problems, 2.0 problems/s, 0.0 s left"
    assert lines[3] == ": 3/6 problems, 0.3 problems/s, 10 s left"


def test_long_stages_speak_once_a_minute(capsys, monkeypatch) -> None:
    now = [0.0]
    monkeypatch.setattr(terminal.time, "monotonic", lambda: now[0])
    view = terminal.LogView()
    view._title = "[1/2] tiny/slow"
    for now[0] in (1.0, 30.0, 61.0, 62.0, 100.0, 122.0):
        view.update(now[0], 200, "rows")
    assert capsys.readouterr().out.splitlines() == [
        "[1/2] tiny/slow: 61/200 rows, 1.0 rows/s, 2 min 19 s left",
        "[1/2] tiny/slow: 122/200 rows, 1.0 rows/s, 1 min 18 s left",
    ]


def test_live_view_on_a_terminal(tiny, tmp_path) -> None:
    """A run in a pseudo-terminal: the stages' lines stay, the bar goes."""
    import pty

    seen: list[bytes] = []

    def read(descriptor: int) -> bytes:
        data = os.read(descriptor, 65536)
        seen.append(data)
        return data

    program = [sys.executable, str(Path(tiny_stages.__file__)), "run", *tiny]
    os.environ["PYTHONPATH"] = str(ROOT)
    status = pty.spawn(program, read)
    assert os.waitstatus_to_exitcode(status) == 0
    text = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", b"".join(seen)).decode()
    assert "[2/4] tiny/half: 4 of 8 numbers kept" in text
    assert "warning: tiny/half: 1 multiples of five" in text
    assert "report.html" in re.sub(r"\s", "", text)
