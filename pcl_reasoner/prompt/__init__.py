"""Chat templates and vocabularies: what a model reads, at training, sampling and judging."""
