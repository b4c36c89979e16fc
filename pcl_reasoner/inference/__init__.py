"""Servers that answer for a model, and the client that asks them."""
