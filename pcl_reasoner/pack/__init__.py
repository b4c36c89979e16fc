"""Chat template, tokens and labels, exact-fill packing."""
