"""The real embedder, loaded once for all tests here."""

import functools

import pytest

from pcl_reasoner.contamination import check
from pcl_reasoner.embedding import embed

load_once = functools.cache(embed.load_embedder)


@pytest.fixture(autouse=True)
def one_embedder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch computes, but where a test asks for another encoder."""

    def load(model: str, threads: int, encoder: str = "auto") -> embed.Embedder:
        return load_once(model, threads, "torch" if encoder == "auto" else encoder)

    monkeypatch.setattr(check, "load_embedder", load)
