"""JSON and JSON Lines: what cannot be read is named with its file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from pcl_reasoner.core.errors import InputError, StageError
from pcl_reasoner.core.json_lines import json_lines, parsed, whole_lines


def test_lines_are_counted_from_one_and_blank_ones_are_skipped(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b'\xef\xbb\xbf{"a": 1}\n\n  \r\n[2]\n3')
    assert list(json_lines(file)) == [(1, {"a": 1}), (4, [2]), (5, 3)]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"a": ', "not JSON"),
        (b'{"a": "\xff"}', "not UTF-8"),
        ("1".encode("utf-16"), "not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b"1" * 5000, "not JSON"),
        (b"\0\0", "not JSON"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, line: bytes, reason: str) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b"1\n" + line)
    with pytest.raises(StageError, match=rf"a\.jsonl, line 2: {reason}.* Correct the line\."):
        list(json_lines(file))
    with pytest.raises(InputError, match=rf"^here: {reason}.* Ask\.$"):
        parsed(line, "here", "Ask.", InputError)


def test_a_log_is_read_without_a_line_that_is_being_written(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    assert whole_lines(file, "") == []
    file.write_bytes(b'{"a": 1}\n{"a": ')
    assert whole_lines(file, "") == [{"a": 1}]
    file.write_bytes(b'{"a": 1}\n{"a":\n{}\n')
    with pytest.raises(StageError, match=r"a\.jsonl, line 2: not JSON .* Train again\."):
        whole_lines(file, "Train again.")
