"""Lists the files of a folder, and refuses a folder that would be read only in part.

math/train-00000-of-00003.parquet
math/train-00001-of-00003.parquet -> ../../blobs/3f2a…   the link's target is gone: an error
                                                         train-00002-of-00003: missing: an error
"""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePath

from pcl_reasoner.core.errors import InputError

EVERYTHING = "**/*"
_SHARD = re.compile(r"(?P<head>.*)-(?P<number>\d{5,6})-of-(?P<total>\d{5,6})(?P<tail>\..+)?")
"""The name of a part, as data sets and weights of the Hugging Face hub have it."""
_FEW = 3
"""Files that an error names at most."""


def files_below(root: Path, patterns: Iterable[str] = (EVERYTHING,)) -> list[Path]:
    """The files of a file or folder, sorted; hidden files and folders are left out.

    Args:
        root: A file or folder.
        patterns: Globs, relative to the folder.

    Raises:
        InputError: A link leads nowhere, a folder or file cannot be read, or a part of a set is
            missing. The error names them.
    """
    patterns = tuple(patterns)
    if problem := _unreadable(root):
        raise InputError(f"{problem}.")
    if not root.is_dir():
        return [root] if root.is_file() else []
    matching = sorted({path for pattern in patterns for path in _glob(root, pattern)})
    seen = [path for path in matching if not _is_hidden(path.relative_to(root))]
    problems = list(_unreadable_folders(root))
    problems += [text for path in seen if (text := _unreadable(path))]
    files = [path for path in seen if path.is_file()] if not problems else []
    problems += list(_missing_parts(root, files, patterns))
    if problems:
        more = f"; and {len(problems) - _FEW:,} more" if len(problems) > _FEW else ""
        raise InputError("; ".join(problems[:_FEW]) + more + ".")
    return files


def _glob(root: Path, pattern: str) -> list[Path]:
    try:
        return list(root.glob(pattern))
    except (OSError, ValueError, NotImplementedError) as error:
        raise InputError(f"{root / pattern}: cannot be listed ({error}).") from error


def _is_hidden(relative: PurePath) -> bool:
    """Download tools write metadata that changes into hidden folders."""
    return any(part.startswith(".") for part in relative.parts)


def _unreadable(path: Path) -> str | None:
    """Say why a file cannot be read, if so; a path that does not exist is no problem here."""
    try:
        if path.is_symlink() and not path.exists():
            return f"{path}: a link to {path.readlink()}, which is not there"
        is_other = not (path.is_file() or path.is_dir()) and path.exists()
    except OSError as error:
        return f"{path}: cannot be read ({error.strerror})"
    if is_other:
        return f"{path}: neither a file nor a folder"
    if path.exists() and not os.access(path, os.R_OK):
        return f"{path}: cannot be read (no permission)"
    return None


def _unreadable_folders(root: Path) -> Iterator[str]:
    """Folders below the root that a glob would skip."""
    errors: list[OSError] = []
    for folder, names, _ in os.walk(root, onerror=errors.append):
        names[:] = [name for name in names if not name.startswith(".")]
        for path in (Path(folder, name) for name in names):
            if path.is_symlink():
                yield f"{path}: a link to a folder, which is not followed; give that folder's path"
    yield from (f"{one.filename}: cannot be read ({one.strerror})" for one in errors)


def _missing_parts(root: Path, files: list[Path], patterns: tuple[str, ...]) -> Iterator[str]:
    """Parts that other parts' names tell of: ``train-00001-of-00003`` without the third."""
    sets: dict[tuple[Path, str, str, str], set[int]] = {}
    for file in files:
        if found := _SHARD.fullmatch(file.name):
            key = (file.parent, found["head"], found["total"], found["tail"] or "")
            sets.setdefault(key, set()).add(int(found["number"]))
    for (folder, head, total, tail), numbers in sets.items():
        first = 0 if 0 in numbers or int(total) not in numbers else 1
        for number in sorted(set(range(first, first + int(total))) - numbers):
            path = folder / f"{head}-{number:0{len(total)}}-of-{total}{tail}"
            if any(_would_match(path.relative_to(root), pattern) for pattern in patterns):
                others = f"other parts of the {int(total)} are there"
                yield f"{path}: missing, and {others}; name the files to use if that is meant"


def _would_match(relative: PurePath, pattern: str) -> bool:
    """Whether a glob would list a file, if it were there."""
    name = PurePath(pattern).name
    folders = PurePath(pattern).parent.as_posix()
    if not relative.match(name):
        return False
    return folders == "." or "**" in folders or relative.parent.match(folders)
