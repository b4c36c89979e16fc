"""Fixtures of tests that ask servers."""

from sampling_fixtures import inputs

__all__ = ["inputs"]
