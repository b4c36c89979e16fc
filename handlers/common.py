"""Functions that handlers share: they check column names and report counts."""

import logging
from collections.abc import Mapping

from pcl_reasoner.core.errors import InputError
from pcl_reasoner.core.files import nearest

LOGGER = logging.getLogger("pcl_reasoner.handlers")


def checked_map(handler: str, map_keys: Mapping[str, str], keys: tuple[str, ...]) -> dict[str, str]:
    """Return ``map_keys`` unchanged, if every key is one of our columns.

    Args:
        handler: Name of the handler, for the error message.
        map_keys: Our column -> the data's column.
        keys: The columns that may be keys.

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


def refuse_renamed(handler: str, unused: Mapping[str, object], renamed: Mapping[str, str]) -> None:
    """Refuse keywords with old names, which would otherwise be ignored.

    Args:
        handler: Name of the handler, for the error message.
        unused: The keywords that the handler does not use.
        renamed: Old name -> new name.

    Raises:
        InputError: A keyword has an old name.
    """
    for key in unused.keys() & renamed.keys():
        raise InputError(f"{handler}: {key} is called {renamed[key]} now.")


def report(name: str, read: int, kept: int, dropped: Mapping[str, int]) -> None:
    """Log a handler's counts; if rows were dropped, as a warning, which is shown by default.

    Args:
        name: Name of the handler.
        read: Number of rows read.
        kept: Number of rows kept.
        dropped: Reason -> number of rows dropped.
    """
    reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(dropped.items()) if count)
    level = logging.WARNING if reasons else logging.INFO
    LOGGER.log(level, "%s: %d read, %d kept; dropped: %s", name, read, kept, reasons or "none")
