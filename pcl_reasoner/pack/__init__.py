"""Tokens and labels, and segments packed into rows."""
