"""A task, its data and a base model, made from a seed."""
