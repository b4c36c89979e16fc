"""Encodes responses into tokens and labels, and packs segments into rows."""
