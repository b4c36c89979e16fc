"""Sentence embeddings of texts of any length, cached on disk under a hash of the text."""
