"""Logs of running stages: lines that survive a kill, and lines that a disk has changed."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import pytest

from pcl_reasoner.core.append_log import AppendLog, read_line
from pcl_reasoner.core.errors import StageError

FIRST = b'{"key": 1'
"""What the checksum of the first line is of."""


def test_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    log = AppendLog(path)
    log.append([{"key": 1}, {"key": 2, "text": "é\ud800"}, {}])
    log.close()
    log = AppendLog(path)
    assert list(log) == [{"key": 1}, {"key": 2, "text": "é\ud800"}, {}]
    log.append([{"key": 3}])
    assert [record.get("key") for record in log] == [1, 2, None, 3]


def test_a_line_has_the_checksum_of_what_precedes_it(tmp_path: Path) -> None:
    log = AppendLog(tmp_path / "log.jsonl")
    sizes = log.append([{"key": 1}])
    line = log.path.read_bytes()
    assert line == FIRST + f', "crc32": "{zlib.crc32(FIRST):08x}"}}\n'.encode()
    assert sizes == [len(line)]


@pytest.mark.parametrize("torn", ['{"key": 3, "te', '{"key": 3}', "x" * (3 << 20)])
def test_cuts_off_a_torn_last_line(tmp_path: Path, torn: str) -> None:
    """A last line without its newline is torn even when it happens to be JSON."""
    path = tmp_path / "log.jsonl"
    path.write_text('{"key": 1}\n{"key": 2}\n' + torn)
    log = AppendLog(path)
    log.append([{"key": 4}])
    assert [record["key"] for record in log] == [1, 2, 4]
    assert torn not in path.read_text()


def test_a_file_that_is_one_torn_line_becomes_empty(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"key"')
    assert list(AppendLog(path)) == []
    assert path.read_text() == ""


def test_no_changed_bit_passes(tmp_path: Path) -> None:
    """Every bit of a line: the record is as it was, or it is refused."""
    log = AppendLog(tmp_path / "log.jsonl")
    log.append([{"problem_id": "a", "correct": True, "text": "6·7"}])
    line = log.path.read_bytes()
    same = 0
    for bit in range(8 * (len(line) - 1)):  # its newline makes it a line
        changed = bytearray(line)
        changed[bit // 8] ^= 1 << bit % 8
        found = read_line(bytes(changed))
        if found is not None:
            kept = {name: found[name] for name in ("problem_id", "correct", "text")}
            assert kept == {"problem_id": "a", "correct": True, "text": "6·7"}
            same += 1
    assert same < 8 * len('"crc32": ')  # in the name of the checksum itself, nowhere else


def test_damaged_lines_are_removed_and_said_and_the_others_stay(tmp_path: Path) -> None:
    log = AppendLog(tmp_path / "log.jsonl")
    log.append([{"key": number} for number in range(5)])
    log.close()
    lines = log.path.read_bytes().splitlines(keepends=True)
    lines[1] = lines[1].replace(b"1", b"7", 1)  # still JSON
    lines[3] = b"\0" * (len(lines[3]) - 1) + b"\n"
    log.path.write_bytes(b"".join(lines))
    with pytest.raises(StageError, match=r"2 damaged lines, the first is line 2.*removed.*again"):
        list(AppendLog(log.path))
    assert [record["key"] for record in AppendLog(log.path)] == [0, 2, 4]
    assert list(tmp_path.iterdir()) == [log.path]


def test_lines_of_an_earlier_version_are_read(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps({"key": 1}) + "\n")
    assert list(AppendLog(path)) == [{"key": 1}]
