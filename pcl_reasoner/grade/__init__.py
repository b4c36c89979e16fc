"""Grades responses by rule or by a judge model, and selects responses to train on."""
