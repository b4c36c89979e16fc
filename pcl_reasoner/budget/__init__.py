"""Estimates what a recipe takes: hours of training, servers, sandboxes and rounds, and disk."""
