"""Graded responses -> better problems: ground truths are revised, and pass rates are filtered."""
