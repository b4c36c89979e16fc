"""Finds recipes and launch files, looks for other files, and reads the end of logs."""

import difflib
import errno
import os
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml

from pcl_reasoner.core.errors import InputError, shortened

PACKAGE = Path(__file__).resolve().parent.parent


def shipped(folder: str) -> Path:
    """The folder ``recipes`` or ``launch`` that is shipped with the package.

    An installed package contains the folder (setup.cfg maps it there). In a checkout the folder is
    beside the package.
    """
    inside = PACKAGE / folder
    return inside if inside.is_dir() else PACKAGE.parent / folder


def find(name: str, *folders: str) -> Path:
    """Find a recipe or launch file: first as a path, then among the shipped files.

    Args:
        name: ``recipes/v15_opg.yaml``, ``v15_opg.yaml``, ``v15_opg`` or any path.
        folders: ``recipes``, ``launch`` or both.

    Raises:
        InputError: There is no such file; the error suggests the nearest shipped name.
    """
    name = name if is_possible(name) else shortened(name, 100)
    if is_file(Path(name)):
        return Path(name)
    names = []
    for folder in folders:
        inside = name.removeprefix(f"{folder}/")
        for path in (shipped(folder) / inside, shipped(folder) / f"{inside}.yaml"):
            if is_file(path):
                return path
        names += sorted(path.name for path in shipped(folder).glob("*.yaml"))
    kinds = " or ".join(folder.removesuffix("s") for folder in folders)
    raise InputError(
        f"{name}: no such file, and no shipped {kinds} file has that name."
        f"{nearest(Path(name).name, names)} Shipped: {', '.join(names)}."
    )


def is_file(path: Path) -> bool:
    """Whether a path is a file.

    Raises:
        InputError: A folder on the way may not be searched.
    """
    return exists(path) and path.is_file()


def exists(path: Path) -> bool:
    """Whether a path exists.

    Raises:
        InputError: A folder on the way may not be searched.
    """
    try:
        return is_possible(str(path)) and path.exists()
    except PermissionError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}).") from error


def is_possible(name: str) -> bool:
    """Whether the operating system takes a text as a path: it is not too long for one."""
    try:
        os.lstat(name)
    except OSError as error:
        return error.errno != errno.ENAMETOOLONG
    except ValueError:  # a null byte
        return False
    return True


def expanded(path: str | Path) -> Path:
    """The path with ``~`` and ``~user`` replaced by the home folder.

    Raises:
        InputError: There is no such user, or it has no home folder.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise InputError(
            f"{path}: there is no home folder for {Path(path).parts[0]}; write the whole path."
        ) from error


def nearest(name: str, known: Iterable[str]) -> str:
    """The text `` Did you mean …?`` with the most similar known name; empty if none is similar."""
    match = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" Did you mean {match[0]!r}?" if match else ""


def yaml_text(value: Any) -> str:
    """Convert a value to YAML; keys keep their order."""
    return str(yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=100))


def last_lines(log: Path, count: int = 25) -> str:
    """Return the last ``count`` lines of a log that are not empty."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join([line for line in lines if line.strip()][-count:])


def installed_version(name: str) -> str | None:
    """The version of an installed distribution; None if it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
