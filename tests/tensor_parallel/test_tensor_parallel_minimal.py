"""The minimal case that docs/internals/mindspore_all_reduce.md gives to MindSpore's maintainers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from run_ranks import run_ranks

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).resolve().parents[2] / "docs" / "internals" / "mindspore_all_reduce.py"


@pytest.mark.parametrize(("columns", "is_wrong"), [("1", True), ("2", False)])
def test_a_gradient_is_wrong_where_a_rank_has_one_column(columns: str, is_wrong: bool) -> None:
    for rank, said in enumerate(run_ranks(2, SCRIPT, [columns])):
        found = re.search(rf"rank {rank}: error (\S+)", said)
        assert found is not None, said
        error = float(found[1])
        assert error > 0.1 if is_wrong else error < 1e-6
