"""Tests here run ranks as processes (tests/ranks)."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(scope="session", autouse=True)
def _ranks_can_run() -> None:
    """In CI a machine that cannot run ranks fails; elsewhere the reason of the skip is given."""
    import rank_extension

    from pcl_reasoner.precompile.compile_run import possible

    problem = rank_extension.problem()
    if problem and os.environ.get("CI"):
        pytest.fail(problem)
    if problem and possible():
        problem += (
            " What still runs is the check of the compiled graph for merged AllReduces "
            "(tests/precompile/test_precompile_compile.py)."
        )
    if problem:
        pytest.skip(problem)
