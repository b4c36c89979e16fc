"""Starts, watches and logs commands, here or on a host; they end when this process ends."""
