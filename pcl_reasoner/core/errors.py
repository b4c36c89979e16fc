"""Errors that a user sees. A message names the file or key, the problem, and what to do next."""

import errno
import importlib
import os
from pathlib import Path
from types import ModuleType


class PclError(Exception):
    """Base class of the errors that the command line prints without a traceback. Exit code 1."""

    exit_code = 1


class InputError(PclError):
    """The recipe, launch file, override or source is wrong; nothing was run. Exit code 2."""

    exit_code = 2


class StageError(PclError):
    """A stage could not do its work, or another process has locked the run folder. Exit code 1."""


_LINE = 2000
"""Characters of an error's line at most."""
_LISTED = 100
"""Problems that an error lists at most: who reads more of them in one go?"""


def join_errors(errors: list[str]) -> InputError:
    """Make one error from several, so that a user can fix all of them at once.

    Args:
        errors: One message per problem, without bullets.
    """
    if len(errors) == 1:
        return InputError(errors[0])
    lines = [f"  - {error}" for error in errors[:_LISTED]]
    if len(errors) > _LISTED:
        lines.append(f"  and {len(errors) - _LISTED:,} more")
    return InputError("\n".join([f"{len(errors):,} problems:", *lines]))


def shortened(text: str, most: int) -> str:
    """Cut the middle out of a text that has more than ``most`` characters, and say how much."""
    if len(text) <= most:
        return text
    head, tail = most - most // 3, most // 3
    return f"{text[:head]}… ({len(text) - most:,} characters) …{text[len(text) - tail :]}"


def printable(message: str) -> str:
    """Cut long lines, which hold a value of a person's, and escape what is not UTF-8."""
    text = "\n".join(shortened(line, _LINE) for line in message.split("\n"))
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def not_writable(folder: Path, error: OSError) -> StageError:
    """The error for a folder below ``--runs`` that cannot be written."""
    return StageError(
        f"{folder}: cannot be written ({error.strerror}). Choose another folder with --runs."
    )


def disk_error(error: OSError, place: Path | str = "") -> StageError:
    """The error for a file that the operating system could not read or write.

    Args:
        error: What the system said; its file's name is preferred to ``place``.
        place: Where it happened, if the system did not name the file.
    """
    where = error.filename or place
    if isinstance(where, bytes):
        where = os.fsdecode(where)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        what = "the disk is full. Free space and run again; finished stages are kept."
    elif error.errno in (errno.EACCES, errno.EROFS, errno.EPERM):
        what = "cannot be written or read: no permission. Choose another folder with --runs."
    elif error.errno == errno.EIO:
        what = (
            "the disk fails (input/output error). Look at the system's messages (dmesg), choose "
            "another disk with --runs, or run again."
        )
    else:
        what = f"{type(error).__name__}: {error.strerror or error}."
    return StageError(f"{where}: {what}" if where else what)


def is_out_of_memory(error: BaseException) -> bool:
    """True if an error says that memory ran out, in Python or in a library of C++."""
    words = ("std::bad_alloc", "malloc of size", "realloc of size", "cannot allocate memory")
    text = str(error).lower()
    return isinstance(error, MemoryError) or any(word in text for word in words)


def out_of_memory(doing: str, error: BaseException) -> StageError:
    """The error for memory that ran out.

    Args:
        doing: What was being done, e.g. ``reading part-00000.parquet``.
        error: The library's error.
    """
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    detail = f" ({error})" if str(error) else ""
    return StageError(
        f"out of memory while {doing}{detail}. This machine has {total:.1f} GiB, and a limit of "
        "the process or its container may be lower. Stop other programs, set fewer workers in the "
        "launch file, or use a machine with more memory; then run the same command again."
    )


def in_words(error: Exception, doing: str) -> StageError | None:
    """The error for what the machine lacks, memory or a disk; None for any other error."""
    if is_out_of_memory(error):
        return out_of_memory(doing, error)
    return disk_error(error) if isinstance(error, OSError) else None


def require(module: str, extra: str) -> ModuleType:
    """Import an optional module; if it is missing, the error says how to install it.

    Args:
        module: Import name, e.g. ``tensorboardX``.
        extra: The extra of this package that installs it.

    Raises:
        StageError: The module is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise StageError(
            f"{module} is not installed. Install it with: pip install 'pclr-ms[{extra}]' ({error})"
        ) from error
