"""The real embedder, loaded once for all tests here: loading takes longer than most of them."""

import functools

import pytest

from pcl_reasoner.contamination import check, embed

load_once = functools.cache(embed.load_embedder)


@pytest.fixture(autouse=True)
def one_embedder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "load_embedder", load_once)
