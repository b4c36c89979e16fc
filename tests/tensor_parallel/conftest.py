"""Processes for ranks stand in tests/ranks; batches and reference losses in tests/losses."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS / "ranks"), str(TESTS / "losses")]


@pytest.fixture(scope="session", autouse=True)
def _ranks_can_run() -> None:
    """CI never goes around these tests."""
    import rank_extension

    problem = rank_extension.problem()
    if problem and os.environ.get("CI"):
        pytest.fail(problem)
    if problem:
        pytest.skip(
            f"{problem} In place of these tests stands the check of the compiled graph "
            "(tests/cluster/test_cluster_compile.py): no AllReduce is merged."
        )
