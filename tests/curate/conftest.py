"""What the curation tests have in common: a context, and folders to write to."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from curate_helpers import Rows

from pcl_reasoner.stage import StageContext


@pytest.fixture
def context(tmp_path: Path) -> StageContext:
    return StageContext(name="curate", kept_apart=tmp_path / "kept_apart.jsonl")


@pytest.fixture
def kept_apart(context: StageContext) -> Callable[[], Rows]:
    def lines() -> Rows:
        text = context.kept_apart.read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()]

    return lines


@pytest.fixture
def folder(tmp_path: Path) -> Callable[[str], Path]:
    def make(name: str) -> Path:
        path = tmp_path / name
        path.mkdir(parents=True)
        return path

    return make
