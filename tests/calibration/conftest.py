"""The real embedder, loaded once for all tests here: loading takes longer than most of them."""

import functools
from pathlib import Path

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


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The embedding cache of commands is in the test's folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
