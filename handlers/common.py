"""Functions that all handlers use: they check column names and report counts."""

import logging
from collections.abc import Mapping

from pcl_reasoner.core.errors import InputError
from pcl_reasoner.core.files import nearest

LOGGER = logging.getLogger("pcl_reasoner.handlers")


def checked_map(handler: str, map_keys: Mapping[str, str], keys: tuple[str, ...]) -> dict[str, str]:
    """Check that every key of ``map_keys`` is one of our columns; return a copy of the map.

    Args:
        handler: Name of the handler, for the error message.
        map_keys: Our name of a column -> its name in the data.
        keys: Our names that are allowed.

    Raises:
        InputError: A key is not one of our columns.
    """
    for key in map_keys:
        if key not in keys:
            raise InputError(
                f"{handler}: map_keys has {key}; expected one of "
                f"{', '.join(keys)}, each with the data's column.{nearest(key, keys)}"
            )
    return dict(map_keys)


def report(name: str, read: int, kept: int, dropped: Mapping[str, int]) -> None:
    """Log a handler's counts: as a warning, which is shown by default, if rows were dropped.

    Args:
        name: Name of the handler.
        read: Number of rows read.
        kept: Number of rows kept.
        dropped: Reason -> number of rows dropped.
    """
    reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(dropped.items()) if count)
    level = logging.WARNING if reasons else logging.INFO
    LOGGER.log(level, "%s: %d read, %d kept; dropped: %s", name, read, kept, reasons or "none")
