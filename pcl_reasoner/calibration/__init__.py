"""Measures which cosines of an embedder mean that two problems are the same."""
