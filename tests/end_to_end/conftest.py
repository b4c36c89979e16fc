"""One run that nothing disturbs, which several tests look at."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from end_to_end_helpers import MARK, Whole, command, environment, write_recipes


@pytest.fixture(scope="session")
def whole(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """The small recipe, run by the installed wheel in a folder of its own."""
    recipe = write_recipes(tmp_path_factory.mktemp("recipes"))
    folder = tmp_path_factory.mktemp("whole")
    env = environment(**{MARK: str(folder / "runs")})
    del env["PYTHONPATH"]
    words = command("run", recipe, program=[str(installed)])
    answer = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True)
    return Whole(recipe, folder / "runs", answer)
