"""DeconBench: a benchmark of checkers of contamination; see README.md."""
