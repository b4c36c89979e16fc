"""Keys that servers ask for. They stand in the environment; files name the variables alone.

placement:
  judge_urls: [https://judge.example/v1]
  api_keys: {https://judge.example/v1: JUDGE_KEY}
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")


def without_slash(url: str) -> str:
    """A base URL as requests are made of it."""
    return url.rstrip("/")


def check_variable(name: str, what: str) -> None:
    """Refuse what is no name of an environment variable.

    Args:
        name: Not shown, as it may be the key itself.
        what: What should name one, for the error.

    Raises:
        ValueError: It is none.
    """
    if not _VARIABLE.fullmatch(name):
        raise ValueError(
            f"{what}: expected the name of an environment variable that holds the key, e.g. "
            "JUDGE_KEY; a key itself does not belong there"
        )


def key_in(variable: str) -> str:
    """The key in an environment variable, without what a file's line end left; empty for none."""
    return os.environ.get(variable, "").strip()


def missing_keys(api_keys: Mapping[str, str]) -> list[str]:
    """A sentence for each key that the environment does not have.

    Args:
        api_keys: URL -> environment variable.
    """
    return [
        f"{url} asks for a key, and the environment has no {variable}: export {variable}=KEY."
        for url, variable in api_keys.items()
        if not key_in(variable)
    ]
