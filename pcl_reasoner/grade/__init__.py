"""Answer extraction, equivalence, judge, reward, selection."""
