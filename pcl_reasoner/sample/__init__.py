"""Draws n responses per problem, from the local sampler or from servers."""
