"""Computes how likely given tokens are under a policy."""
