"""Checks of values that leave this process: hosts, URLs, environment variables and paths.

A wrong one would otherwise fail late, run as a shell command, or put a password into a manifest.
"""

import os
import re
from collections import Counter
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from pcl_reasoner.core import files, yaml_file
from pcl_reasoner.core.errors import InputError, shortened

SECRET = "secret"
"""Type of the errors that must not show the value, because it may hold a password."""

_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KERNEL_FOLDERS = ("/proc", "/sys", "/dev")
"""Folders whose files are devices and tables of the kernel; some never end. /dev/shm has files."""


def check_host(name: str) -> None:
    """Raise an error if a text is not a host name or an IPv4 address.

    Raises:
        ValueError: The text has another form; the error says where user and port belong.
    """
    if not _HOST.fullmatch(name):
        raise ValueError(
            f"{name!r} is not a host name or an IPv4 address (devices_per_host sets the devices "
            "per host; user and port go into an OpenSSH configuration file, ssh.config)"
        )


def hosts_in(file: str) -> list[str]:
    """The hosts of a host file: one per line; ``#`` begins a comment.

    Raises:
        ValueError: The file cannot be read, names no host, or has a line that is not one host name.
    """
    try:
        text = yaml_file.read_text(files.expanded(file))
    except (ValueError, InputError) as error:
        raise ValueError(f"{file} cannot be read: {error}") from error
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        name = line.partition("#")[0].strip()
        if name:
            try:
                check_host(name)
            except ValueError as error:
                raise ValueError(f"{file} line {number}: {error}") from error
            found.append(name)
    if not found:
        raise ValueError(f"{file} names no host")
    return found


def repeated(names: list[str]) -> list[str]:
    """The names that occur more than once, sorted."""
    return sorted(name for name, times in Counter(names).items() if times > 1)


def check_url(url: str) -> str:
    """Return the base URL of a server, or raise an error that does not show it.

    A password in it would be written into manifests and logs.

    Raises:
        ValueError: It is no URL with http or https and a host, or it has a user, a password, a
            query or a fragment.
    """
    try:
        parts = urlsplit(url)
        is_base = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets without an address, a port that is none
        is_base = False
    if "@" in url.partition("://")[2]:
        raise PydanticCustomError(
            SECRET,
            "a URL must not have a user or password, which manifests and logs would show; write "
            "the URL without them, and name the key's environment variable under api_keys",
        )
    if not is_base or re.search(r"[\s?#]", url):
        raise PydanticCustomError(
            SECRET,
            "must be the base URL of a server such as http://host:8000/v1, without ? and #",
        )
    return url


def _check_urls(urls: list[str]) -> list[str]:
    return [check_url(url) for url in urls]


def check_without_password(text: str | None) -> str | None:
    """Return a path, id or address, or raise an error that does not show a password in it.

    Raises:
        ValueError: It is a URL with a user or a password.
    """
    if text and "@" in text.partition("://")[2].partition("/")[0]:
        raise PydanticCustomError(SECRET, "must not have a user or password, which logs would show")
    return text


def _check_variables(variables: dict[str, str]) -> dict[str, str]:
    for name in variables:
        if not _VARIABLE.fullmatch(name):
            raise ValueError(
                f"{shortened(name, 60)!r} is not the name of an environment variable, which has "
                "letters, digits and _ only and does not begin with a digit"
            )
    return variables


def _check_home(path: str | None) -> str | None:
    try:
        files.expanded(path or "")
    except InputError as error:
        raise ValueError("there is no such home folder; write the whole path") from error
    return path


def check_data_path(path: str) -> None:
    """Raise an error if a path cannot name a person's own file or folder.

    Raises:
        ValueError: It is a URL or too long, its home folder is not known, or it is the root folder
            or one of the kernel's.
    """
    if "://" in path:
        raise ValueError("must be a path, not a URL")
    if not files.is_possible(path):
        raise ValueError("cannot be a path: it is too long")
    real = os.path.realpath(files.expanded(str(_check_home(path))))
    inside = [one for one in _KERNEL_FOLDERS if Path(real).is_relative_to(one)]
    if real == "/" or (inside and not Path(real).is_relative_to("/dev/shm")):
        raise ValueError("must not be the root folder, nor in /proc, /sys or /dev")


def check_pattern(pattern: str) -> None:
    """Raise an error if a text is not a glob of files below a folder.

    Raises:
        ValueError: It is empty or absolute, has ``..``, or has ``**`` beside other characters.
    """
    parts = Path(pattern).parts
    if not parts or Path(pattern).is_absolute() or ".." in parts:
        raise ValueError("must be a glob below the source's folder, e.g. data/*.parquet")
    if any("**" in part and part != "**" for part in parts):
        raise ValueError("** must stand alone between slashes, e.g. **/*.parquet")


def check_below(path: str) -> None:
    """Raise an error if a path leads out of the folder that it is relative to.

    Raises:
        ValueError: It is absolute or has ``..``.
    """
    if Path(path).is_absolute() or ".." in Path(path).parts:
        raise ValueError("must be a path inside the stage's artifact, without ..")


Urls = Annotated[list[str], AfterValidator(_check_urls)]
"""Base URLs of servers; none has a password."""
Variables = Annotated[dict[str, str], AfterValidator(_check_variables)]
"""Environment variables: name -> value. The name goes into shell scripts."""
ProgramPath = Annotated[str, AfterValidator(_check_home)]
"""A path whose ``~`` or ``~user`` is known here."""
