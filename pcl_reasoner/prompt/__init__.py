"""Chat templates and vocabularies: they turn messages into the text and tokens a model reads."""
