"""Copies a recipe with its profile files, or a launch file, for a person to change."""

import os
import shutil
from pathlib import Path

from pcl_reasoner.core import files
from pcl_reasoner.core.errors import InputError, join_errors
from pcl_reasoner.core.yaml_file import read_yaml


def copy(name: str, destination: Path, force: bool) -> list[tuple[Path, Path]]:
    """Copy a recipe with the profile files that it names, or copy a launch file.

    Args:
        name: A path, or the name of a shipped recipe or launch file.
        destination: A file, or an existing folder.
        force: Overwrite existing files.

    Returns:
        Pairs of source and target; the recipe or launch file comes first.

    Raises:
        InputError: There is no such file, or targets exist already or are the source itself. The
            error names all such targets, and nothing is copied.
    """
    source = files.find(name, "recipes", "launch")
    inside = files.exists(destination) and destination.is_dir()
    target = destination / source.name if inside else destination
    pairs = [(source, target)]
    pairs += [(source.parent / file, target.parent / file) for file in _profile_files(source)]
    errors = [
        f"{origin}: no such file, or it cannot be read."
        for origin, _ in pairs
        if not files.is_file(origin) or not os.access(origin, os.R_OK)
    ]
    errors += [
        f"{to}: is the source file itself. Give another destination."
        if to.samefile(origin)
        else f"{to}: already exists. Use --force to overwrite it."
        for origin, to in pairs
        if files.exists(to) and files.exists(origin) and (not force or to.samefile(origin))
    ]
    if errors:
        raise join_errors(errors)
    for origin, to in pairs:
        try:
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(origin, to)
        except OSError as error:
            raise InputError(f"{to}: cannot be written ({error.strerror}).") from error
    return pairs


def _profile_files(recipe: Path) -> list[str]:
    """The profile files that a recipe names; each must be in the recipe's own folder."""
    profiles = read_yaml(recipe).get("profiles") or {}
    named = profiles.values() if isinstance(profiles, dict) else [profiles]
    for file in named:
        if not isinstance(file, str) or Path(file).is_absolute() or ".." in Path(file).parts:
            raise InputError(
                f"{recipe}: profiles: {file!r} is not a file in the recipe's folder or below it, "
                "so it cannot be copied with the recipe."
            )
    return list(named)
