"""Finds benchmark questions among training problems, by window embeddings and masked n-grams."""
