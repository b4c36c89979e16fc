"""Compares what servers compute with what the trained checkpoint computes."""
