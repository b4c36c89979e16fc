"""Computes the perplexity of responses under a policy."""
