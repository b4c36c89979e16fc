"""API keys of servers. A launch file names the environment variable of a key, not the key.

placement:
  judge_urls: [https://judge.example/v1]
  api_keys: {https://judge.example/v1: JUDGE_KEY}
"""

import os
import re
from collections.abc import Mapping

_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")


def without_slash(url: str) -> str:
    """The base URL without trailing slashes, as requests use it."""
    return url.rstrip("/")


def check_variable(name: str, what: str) -> None:
    """Raise an error if a text is not the name of an environment variable.

    Args:
        name: The text to check. The error does not show it, because it may be the key itself.
        what: The setting that should name a variable, for the error.

    Raises:
        ValueError: The text is not such a name.
    """
    if not _VARIABLE.fullmatch(name):
        raise ValueError(
            f"{what}: expected the name of an environment variable that holds the key, e.g. "
            "JUDGE_KEY; do not write the key itself here"
        )


def key_in(variable: str) -> str:
    """Return the key in an environment variable; empty if the variable is not set.

    Surrounding whitespace is removed, e.g. the line end of a file that the key was read from.
    """
    return os.environ.get(variable, "").strip()


def missing_keys(api_keys: Mapping[str, str]) -> list[str]:
    """One sentence per key whose environment variable is not set.

    Args:
        api_keys: URL -> name of the environment variable.
    """
    return [
        f"{url} needs a key, but {variable} is not set: export {variable}=KEY."
        for url, variable in api_keys.items()
        if not key_in(variable)
    ]
