"""Checks all stages of a recipe against one another, before the first stage runs."""
