"""What a question keeps in any language: its numbers and formulas, weighted by their rarity."""
