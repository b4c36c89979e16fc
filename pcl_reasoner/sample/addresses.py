"""Servers that are there already, and their keys, which no file holds.

placement:
  judge_urls: [https://judge.example/v1]
  api_keys: {https://judge.example/v1: JUDGE_KEY}
-> {"https://judge.example/v1": <the environment's JUDGE_KEY>}
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from pcl_reasoner.errors import StageError
from pcl_reasoner.schema import missing_keys, without_slash

Addresses = Mapping[str, str | None]
"""Base URL -> the key that is shown to it; None where it asks for none."""


def addresses(placement: Mapping[str, Any], name: str) -> Addresses:
    """The servers that the launch file names, with their keys.

    Args:
        placement: ``api_keys`` names the environment variables of keys.
        name: ``server_urls`` or ``judge_urls``.

    Raises:
        StageError: The environment has no such variable.
    """
    urls = [without_slash(str(url)) for url in placement.get(name) or []]
    variables = {without_slash(url): it for url, it in placement.get("api_keys", {}).items()}
    wanted = {url: variables[url] for url in urls if url in variables}
    missing = missing_keys(wanted)
    if missing:
        raise StageError(" ".join(missing))
    return {url: os.environ[wanted[url]] if url in wanted else None for url in urls}
