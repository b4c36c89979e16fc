"""What tests of sampling share: a stage's inputs, and a server that answers well."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from completion_server import CompletionServer
from sample_helpers import model_folder, problems_folder


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What the stage reads: three problems and a model."""
    root = tmp_path_factory.mktemp("inputs")
    return {"problems": problems_folder(root / "p"), "policy": model_folder(root / "m")}


@pytest.fixture
def server() -> Iterator[CompletionServer]:
    """One that a test may script."""
    one = CompletionServer()
    yield one
    one.stop()
