"""The part of the report on on-policy training: its figures, charts, problems and responses."""
