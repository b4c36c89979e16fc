"""Where things are in a checkout."""

from pathlib import Path

HELPERS = Path(__file__).resolve().parent
ROOT = HELPERS.parent.parent
