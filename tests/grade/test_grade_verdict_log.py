"""The judge's log over kills."""

from __future__ import annotations

from pathlib import Path

from pcl_reasoner.grade.judge import Judgement
from pcl_reasoner.grade.judging import VerdictLog, log_line


def test_judgements_servers_and_failures_are_kept_over_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    killed = VerdictLog(path)
    killed.add_server({"url": "http://a/v1", "version": "1"})
    killed.retried.update({"connection": 2})
    killed.add([log_line(("a", 0), Judgement(True, "x" * 2001 + "ü", asked=2))])
    killed.add([log_line(("a", 1), Judgement(None, "hm", asked=3))])
    path.write_bytes(path.read_bytes() + b'{"problem_id": "b", "sample_ind')  # a torn line
    stopped = VerdictLog(path)
    stopped.add_server({"url": "http://a/v1", "version": "1"})
    stopped.retried["timeout"] += 1
    stopped.close()  # as after an error
    last = VerdictLog(path)
    assert last.judgements == {
        ("a", 0): Judgement(True, "x" * 1999 + "ü", 2),
        ("a", 1): Judgement(None, "hm", 3),
    }
    assert last.servers == [{"url": "http://a/v1", "version": "1"}]
    assert last.info() == {
        "judged": 2,
        "asked_again": 3,
        "unreadable": 1,
        "retried": {"connection": 2, "timeout": 1},
    }
