"""The exact command of every node."""
