"""What a handler says of the rows that it read: how many are left, and why others are not."""

from __future__ import annotations

import logging
from collections.abc import Mapping

LOGGER = logging.getLogger("pcl_reasoner.handlers")


def report(name: str, read: int, kept: int, dropped: Mapping[str, int]) -> None:
    """Log a handler's counts; as a warning, which is shown by default, where rows were dropped.

    Args:
        name: The handler's.
        read: Rows that came.
        kept: Rows that are left.
        dropped: Reason -> rows.
    """
    reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(dropped.items()) if count)
    level = logging.WARNING if reasons else logging.INFO
    LOGGER.log(level, "%s: %d read, %d kept; dropped: %s", name, read, kept, reasons or "none")
