"""Executes a recipe's training as ranks on a CPU, and compares it with one process."""
