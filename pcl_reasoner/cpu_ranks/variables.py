"""Environment variables with which a training process becomes a rank on a CPU.

    PCL_CPU_RANKS_LIBRARY=/…/cpu_ranks-1a2b3c.so PCL_CPU_RANKS_SOCKETS=/tmp/ranks-x7 msrun …

They are set for all processes of a run. msrun gives each process its rank.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from pcl_reasoner.core.errors import InputError

LIBRARY = "PCL_CPU_RANKS_LIBRARY"
"""Path of the built extension."""
SOCKETS = "PCL_CPU_RANKS_SOCKETS"
"""Folder in which the ranks have their sockets."""
LIMIT = "PCL_CPU_RANKS_LIMIT"
"""Seconds that a rank waits for another rank's message."""
EXACT = "PCL_CPU_RANKS_EXACT"
"""1: exponentials and softmax are NumPy's, too, because MindSpore's own are good to about 4e-6."""

_LIMIT_SECONDS = 300.0
_LONGEST = 95
"""A socket's path has at most 107 characters, and the rank's number is part of it."""


def variables(library: Path, sockets: Path) -> dict[str, str]:
    """Return the environment variables for the processes of one run.

    Args:
        library: The built extension.
        sockets: An existing folder with a short path.
    """
    return {LIBRARY: str(library), SOCKETS: str(sockets), EXACT: "1"}


def requested() -> bool:
    """Return whether this process is to become a rank on a CPU.

    Raises:
        InputError: Only one of the two variables is set, or a path is wrong.
    """
    if LIBRARY not in os.environ and SOCKETS not in os.environ:
        return False
    library, sockets = os.environ.get(LIBRARY, ""), os.environ.get(SOCKETS, "")
    usable = sockets and Path(sockets).is_dir() and len(sockets) <= _LONGEST
    if not Path(library).is_file() or not usable:
        raise InputError(
            f"{LIBRARY} is {library!r} and {SOCKETS} is {sockets!r}: expected the file that "
            "pclr-ms rehearse built in runs/.cache, and an existing folder whose path has at most "
            f"{_LONGEST} characters. Set both, or neither."
        )
    return True


def limit_seconds(environment: Mapping[str, str]) -> float:
    """Return the number of seconds that a rank waits for another rank's message."""
    return float(environment.get(LIMIT, _LIMIT_SECONDS))
