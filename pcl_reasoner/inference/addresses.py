"""Servers that are running already, each with its API key.

placement: {server_urls: [http://a:8000/v1, https://b/v1/], api_keys: {https://b/v1: KEY_B}}
-> {"http://a:8000/v1": None, "https://b/v1": "…"}
"""

from collections.abc import Mapping

from pcl_reasoner.core.api_keys import key_in, missing_keys, without_slash
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schema import Placement

Addresses = Mapping[str, str | None]
"""Base URL -> the server's API key; None if the server needs no key."""


def addresses(urls: list[str], placement: Placement) -> Addresses:
    """Return the servers that the launch file names: base URL -> API key.

    Args:
        urls: The launch file's ``server_urls``, ``judge_urls`` or ``score_urls``.
        placement: ``api_keys`` names the environment variables that hold the keys.

    Raises:
        StageError: A named environment variable is not set or is empty.
    """
    urls = [without_slash(url) for url in urls]
    variables = {without_slash(url): name for url, name in placement.api_keys.items()}
    missing = missing_keys({url: variables[url] for url in urls if url in variables})
    if missing:
        raise StageError(" ".join(missing))
    return {url: key_in(variables[url]) if url in variables else None for url in urls}
