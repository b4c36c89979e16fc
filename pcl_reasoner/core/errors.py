"""Errors that a user sees. A message names the file or key, the problem, and what to do next."""

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


def join_errors(errors: list[str]) -> InputError:
    """Make one error from several, so that a user can fix all of them at once.

    Args:
        errors: One message per problem, without bullets.
    """
    if len(errors) == 1:
        return InputError(errors[0])
    lines = "\n".join(f"  - {error}" for error in errors)
    return InputError(f"{len(errors)} problems:\n{lines}")


def not_writable(folder: Path, error: OSError) -> StageError:
    """The error for a folder below ``--runs`` that cannot be written."""
    return StageError(
        f"{folder}: cannot be written ({error.strerror}). Choose another folder with --runs."
    )


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
