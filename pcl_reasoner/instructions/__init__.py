"""Checks whether a text follows instructions, e.g. "in at least 40 words" (IFEval's 25 checks)."""
