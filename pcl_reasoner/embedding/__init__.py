"""Sentence embeddings of texts of any length, on disk by content."""
