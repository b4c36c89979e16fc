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
    """In CI a machine that cannot run ranks fails; elsewhere the reason of the skip is given."""
    import rank_extension

    from pcl_reasoner.cluster.compile_run import possible

    problem = rank_extension.problem()
    if problem and os.environ.get("CI"):
        pytest.fail(problem)
    if problem and possible():
        problem += (
            " What still runs is the check of the compiled graph for merged AllReduces "
            "(tests/cluster/test_cluster_compile.py)."
        )
    if problem:
        pytest.skip(problem)
