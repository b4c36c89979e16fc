"""The stages of a run as a graph, and what is known of their machines and models."""
