"""Fixtures of tests that ask servers."""

from sampling_fixtures import inputs, server

__all__ = ["inputs", "server"]
