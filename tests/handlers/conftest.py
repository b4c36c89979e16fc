"""The tokenizer and samples of tests/pack serve here too, and the tiny model of tests/train."""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

for room in ("pack", "train"):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / room))


@pytest.fixture(scope="session", autouse=True)
def _logs() -> Iterator[None]:
    """MindFormers logs as soon as it is imported: not into the folder that the tests run in."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOG_MF_PATH", str(Path(folder) / "log"))
        yield
