from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from pcl_reasoner.inference.response_log import FAILURE, RETOKENISED, ResponseLog, record
from pcl_reasoner.sample.stage import _write_responses


def one(name: str, index: int, text: str = "ü", reason: str = "stop") -> dict[str, object]:
    return record((name, index), text, [5, 2], reason, 7, None, "local")


def test_a_key_is_recorded_once(tmp_path: Path) -> None:
    records = ResponseLog(tmp_path / "log.jsonl")
    records.add([one("b", 0), one("a", 1)])
    records.add([one("b", 0, "again"), one("a", 0), one("a", 0, "twice")])
    assert records.keys() == [("a", 0), ("a", 1), ("b", 0)]
    assert len((tmp_path / "log.jsonl").read_text().splitlines()) == 3
    found = {
        (r["problem_id"], r["sample_index"]): r["response"] for r in records.read(records.keys())
    }
    assert found[("b", 0)] == "ü"
    assert records.info()["tokens"] == 6


def test_what_a_kill_left_is_found_and_a_torn_line_is_not(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    first = ResponseLog(path)
    first.add(
        [one("a", 0, "𝛑" * 5), one("a", 1, "x", "length"), {**one("b", 0), RETOKENISED: True}]
    )
    first.close()
    path.write_bytes(path.read_bytes() + b'{"problem_id": "c", "sample_in')
    second = ResponseLog(path)
    assert len(second) == 3
    assert ("c", 0) not in second
    second.add([one("c", 0, "new")])
    texts = [item["response"] for item in second.read([("c", 0), ("a", 0), ("b", 0)])]
    assert texts == ["new", "𝛑" * 5, "ü"]
    assert second.info() == {
        "tokens": 8,
        "mean_length": 2.0,
        "finish_reasons": {"length": 1, "stop": 3},
        "failed": 0,
        "retokenised": 1,
    }
    second.delete()
    assert not path.exists()


def test_what_failed_in_an_earlier_run_is_no_answer_and_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    late = {**one("a", 1, "", "timeout"), FAILURE: "timeout"}
    refused = {**one("b", 0, "", "error"), FAILURE: "status 400"}
    first = ResponseLog(path)
    first.add([one("a", 0), late, refused])
    assert (len(first), first.failed, first.asked_again) == (3, 2, {})
    first.close()
    second = ResponseLog(path)
    assert (second.keys(), second.failed) == ([("a", 0)], 0)
    second.add([one("a", 1, "late, but here"), refused])  # the other one is refused again
    second.close()
    third = ResponseLog(path)
    third.add([one("b", 0, "at last")])
    texts = [item["response"] for item in third.read(third.keys())]
    assert texts == ["ü", "late, but here", "at last"]
    figures = third.info()
    assert figures["asked_again"] == {"status 400": 2, "timeout": 1}
    assert (figures["failed"], figures["finish_reasons"]) == (0, {"stop": 3})


def test_failed_requests_are_counted_over_all_runs_of_a_stage(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    killed = ResponseLog(path)
    killed.retried.update({"connection": 2})
    killed.add([one("a", 0)])
    killed.retried.update({"connection": 1, "status 503": 4})
    killed.add([one("a", 1)])
    killed.retried["timeout"] += 1  # and is killed before another answer comes
    stopped = ResponseLog(path)
    assert stopped.retried == {"connection": 3, "status 503": 4}
    stopped.retried["connection"] += 1
    stopped.close()  # as after an error
    last = ResponseLog(path)
    last.add([one("b", 0)])
    assert last.info()["retried"] == {"connection": 4, "status 503": 4}
    assert [item["problem_id"] for item in last.read(last.keys())] == ["a", "a", "b"]
    assert last.info()["tokens"] == 6


def test_responses_are_written_a_few_at_a_time(tmp_path: Path) -> None:
    """A published response has up to 131 072 tokens: 64 of them are 300 MB as Python's numbers."""
    records = ResponseLog(tmp_path / "log.jsonl")
    keys = [(f"p{number // 8:02d}", number % 8) for number in range(130)]
    records.add([record(key, "x", [7, 8], "stop", 0, 0.1, "s") for key in reversed(keys)])
    _write_responses(tmp_path / "responses", records)
    written = pq.ParquetFile(tmp_path / "responses" / "part-00000.parquet")
    groups = [written.metadata.row_group(i).num_rows for i in range(written.num_row_groups)]
    assert groups == [64, 64, 2]
    rows = written.read().to_pylist()
    assert [(row["problem_id"], row["sample_index"]) for row in rows] == keys
