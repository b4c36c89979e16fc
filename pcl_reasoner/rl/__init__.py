"""On-policy training: rounds, one update after each, and the weights for the next."""
