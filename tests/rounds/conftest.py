"""Three prompts, and folders with the weights of rounds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from policy_server import write_weights
from sample_helpers import model_folder


@pytest.fixture(scope="session")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first policy; its number is 1."""
    return model_folder(tmp_path_factory.mktemp("policy") / "m")


@pytest.fixture
def weights(policy: Path, tmp_path: Path) -> Callable[[int], Path]:
    """The folder of weights with a number, written when it is first asked for."""

    def folder(number: int) -> Path:
        path = tmp_path / "rounds" / f"{number:05d}" / "weights"
        return path if path.exists() else write_weights(path, policy, number)

    return folder
