"""Answer extraction, equivalence, judge, rewards, selection."""
