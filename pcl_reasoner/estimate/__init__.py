"""Estimates memory and hours of a training without any device; calibrates by a real run."""
