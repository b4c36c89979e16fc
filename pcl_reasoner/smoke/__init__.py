"""The first day on a cluster: one pass through all that a run needs, and one file that says so."""
