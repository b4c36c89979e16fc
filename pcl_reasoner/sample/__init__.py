"""n responses a problem, from the local sampler or from servers."""
