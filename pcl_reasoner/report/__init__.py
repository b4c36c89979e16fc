"""Self-contained HTML pages: one per run, and one for result files that were graded again."""
