"""One round of on-policy training: problems, responses, verdicts, advantages, rows."""
