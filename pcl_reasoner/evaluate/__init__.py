"""Avg@k with an interval, pass@k, maj@k."""
