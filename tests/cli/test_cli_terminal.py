"""What is said while a run goes on: the headline, the pace, and the live view."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import tiny_stages

from pcl_reasoner.cli import terminal

ROOT = Path(__file__).resolve().parents[2]


def test_headline_says_where_once(call, tiny, tmp_path) -> None:
    said = "title: LAPTOP, a small one"
    (tmp_path / "here.yaml").write_text(tiny_stages.LAUNCH.replace("title: this machine", said))
    assert call("status", *tiny)[1].startswith("LAPTOP: a small one\n")


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
