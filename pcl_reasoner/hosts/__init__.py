"""Starts training on many hosts, monitors it, and restarts it when a worker or host is lost."""
