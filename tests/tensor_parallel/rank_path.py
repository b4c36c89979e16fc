"""Puts what tests share on the path of a program that pytest does not start."""

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS / "ranks"), str(TESTS / "helpers")]
