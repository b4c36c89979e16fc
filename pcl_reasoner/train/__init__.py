"""MindFormers glue: model, loader, step wrapper, rendered YAML, weights."""
