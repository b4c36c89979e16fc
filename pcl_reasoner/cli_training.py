"""Commands about training: added to the command line by cli.py, which also translates errors."""

from __future__ import annotations
