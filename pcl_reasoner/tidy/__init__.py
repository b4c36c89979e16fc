"""Filters responses by perplexity, repeated phrases and structure."""
