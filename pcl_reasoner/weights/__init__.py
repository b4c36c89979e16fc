"""Reads a model's shape; converts weights between Hugging Face's and MindFormers' formats."""
