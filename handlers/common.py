"""What handlers share: the names of columns, and the counts of what they did."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping

from pcl_reasoner.core.errors import InputError

LOGGER = logging.getLogger("pcl_reasoner.handlers")


def checked_map(handler: str, map_keys: Mapping[str, str], ours: tuple[str, ...]) -> dict[str, str]:
    """``map_keys`` as it is, once every key is one of ours.

    Args:
        handler: Its name, for the error.
        map_keys: Our column -> the data's.
        ours: What may be named.

    Raises:
        InputError: A key is not one of ours.
    """
    for key in map_keys:
        if key not in ours:
            near = difflib.get_close_matches(key, ours, 1)
            meant = f" Did you mean {near[0]}?" if near else ""
            raise InputError(
                f"{handler}: map_keys has {key}; expected one of "
                f"{', '.join(ours)}, each with the data's column.{meant}"
            )
    return dict(map_keys)


def refuse_renamed(handler: str, given: Mapping[str, object], renamed: Mapping[str, str]) -> None:
    """Refuse keywords by their old names, which would else be passed over.

    Args:
        handler: Its name, for the error.
        given: The keywords that are not its own.
        renamed: Old name -> name.

    Raises:
        InputError: One of them has an old name.
    """
    for key in given.keys() & renamed.keys():
        raise InputError(f"{handler}: {key} is called {renamed[key]} now.")


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
