"""A model's shape and weights: Hugging Face's folder to MindFormers' files and back."""
