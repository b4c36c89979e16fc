"""A judge model's verdict on pairs of a text and a benchmark question."""
