"""Small pages of a server: its models, its version, the tokens of a text.

    GET {base}/models   {"data": [{"id": "policy", "max_model_len": 32768, "root": "/w/policy"}]}
    GET {root}/version  {"version": "0.32.0"}
    POST {root}/tokenize {…} -> {"tokens": [1, 414, 287]}

A server may lack them, so a page that is missing or odd is None, and who asks decides.
"""

from typing import Annotated, Any

import httpx
from pydantic import BaseModel, Field

from pcl_reasoner.answers.chat import TokenId
from pcl_reasoner.answers.exchange import Page, exchange, page_of
from pcl_reasoner.answers.failures import Passing

PAGE_SECONDS = 10.0
"""Limit for one of these pages."""


class ModelCard(BaseModel):
    """A model that a server offers."""

    id: Annotated[str, Field(max_length=4096)]
    max_model_len: Annotated[int, Field(gt=0)] | None = None
    owned_by: str | None = None
    root: str | None = None


class Models(BaseModel):
    """All models that a server offers."""

    data: list[ModelCard]


class Version(BaseModel):
    """The version of the server's program."""

    version: Annotated[str, Field(max_length=256)]


class Tokens(BaseModel):
    """The tokens of a text."""

    tokens: list[TokenId]


async def read_page(
    http: httpx.AsyncClient, method: str, url: str, schema: type[Page], **request: Any
) -> Page | None:
    """Return a page; None if its status is not 200, or if it is not as the schema says.

    Raises:
        httpx.TransportError: The server does not answer in time.
    """
    try:
        answer = await exchange(http, method, url, seconds=PAGE_SECONDS, **request)
        return page_of(answer, schema) if answer.status_code == 200 else None
    except Passing:
        return None
