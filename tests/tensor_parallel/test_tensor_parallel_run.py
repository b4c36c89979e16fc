"""Ranks as processes: one that fails ends all, and its own words are given."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_ranks import run_ranks

pytestmark = pytest.mark.slow

PROGRAM = """
from mindspore.communication import get_rank
if get_rank() == 1:
    raise ValueError("a fault of rank 1")
while True:
    pass
"""


def test_a_rank_that_fails_ends_all_and_is_named(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    said = r"program.py, rank 1 of 2: exit code 1:(?s:.*)ValueError: a fault of rank 1"
    with pytest.raises(RuntimeError, match=said):
        run_ranks(2, program, [])


def test_time_that_is_up_is_said(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("while True:\n    pass\n")
    with pytest.raises(RuntimeError, match=r"program.py, rank 0 of 1: not done in 1 s"):
        run_ranks(1, program, [], limit_s=1)
