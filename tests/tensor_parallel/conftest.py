"""Tests here run ranks as processes (tests/helpers/run_ranks.py)."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session", autouse=True)
def _ranks(ranks_can_run: None) -> None:
    """Ranks need g++ and the wheel that they were checked with."""
