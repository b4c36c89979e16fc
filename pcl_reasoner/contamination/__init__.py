"""Is a benchmark question among the training problems? Windows embedded, masked n-grams."""
