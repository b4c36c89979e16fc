"""MindFormers logs as soon as it is imported: not into the folder that the tests run in."""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

# The batches by hand are the losses room's.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "losses"))


@pytest.fixture(scope="session", autouse=True)
def _logs() -> Iterator[None]:
    with tempfile.TemporaryDirectory() as folder:
        before = os.environ.get("LOG_MF_PATH")
        os.environ["LOG_MF_PATH"] = str(Path(folder) / "log")
        yield
        os.environ.pop("LOG_MF_PATH")
        if before is not None:
            os.environ["LOG_MF_PATH"] = before
