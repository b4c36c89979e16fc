"""Evaluation on benchmarks: avg@n with an interval, pass@k, maj@n."""
