"""Runs code that a model wrote, where it can do no harm and cannot grade itself."""
