"""Keeps the checks of problems in a file: the tests of a set of problems can have gigabytes.

keep("9f0c…", '{"tests": …}')   in memory are only its place in the file and its length
of("9f0c…")                     '{"tests": …}'
"""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryFile
from typing import Self


class KeptChecks:
    """The checks of problems, in a file without a name: when it is closed, nothing is left.

    Args:
        folder: Its disk gets the file.
    """

    def __init__(self, folder: Path) -> None:
        self._file = TemporaryFile(dir=folder)  # noqa: SIM115
        self._places: dict[str, tuple[int, int]] = {}
        """Problem -> place and length of its checks in bytes."""

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self._file.close()

    def keep(self, problem: str, checks: str | None) -> None:
        """Write the checks of a problem to the file; null and empty ones need no place."""
        if checks:
            # A text from JSON may have half of a surrogate pair.
            data = checks.encode("utf-8", "surrogatepass")
            place = self._file.seek(0, os.SEEK_END)
            self._places[problem] = (place, self._file.write(data))

    def of(self, problem: str) -> str:
        """Return the checks of a problem; "" if it has none."""
        place, length = self._places.get(problem, (0, 0))
        self._file.seek(place)
        return self._file.read(length).decode("utf-8", "surrogatepass")
