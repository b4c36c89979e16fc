"""A synthetic task, its data and a base model, generated from a seed."""
