"""Fixtures of tests that run the tiny stages."""

from runner_helpers import tiny

__all__ = ["tiny"]
