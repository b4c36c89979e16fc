"""Checks every start of a server against what a stage `prove` stored."""
