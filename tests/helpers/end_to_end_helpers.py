"""A small copy of V1.5's recipe, ``pclr-ms`` as a process, and what its runs leave.

Every stage of the laptop's run is there, on a tenth of its data and with a model that learns
nothing in its six steps: what a run does is tested here, not how well the policy reasons.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from artifact_helpers import verify

from pcl_reasoner.core import artifact, files
from pcl_reasoner.core.yaml_file import read_yaml
from pcl_reasoner.runner.copying import copy

ROOT = Path(files.PACKAGE).parent
MARK = "PCLR_TEST_RUN"
"""Environment variable by which a run's processes are told from all others."""

_TRAIN = {
    "max_steps": 6,
    "global_batch_size": 4,
    "micro_batch_size": 4,
    "checkpoint_steps": 2,
    "model": None,
}
_SYNTHETIC = {
    "benchmark_problems": 10,
    "sft_problems": 60,
    "rl_problems": 20,
    "planted": 2,
    "hidden_size": 32,
    "layers": 1,
}
# Batches of two, so that a run can be cut off between them.
_SAMPLING = {"n": 2, "max_new_tokens": 24, "batch": 2}
# Eight of 191 rows are malformed here, and no response is correct.
SMALL: dict[str, dict[str, Any]] = {
    "v1_sft": {
        "synthetic": _SYNTHETIC,
        "convert": {"max_malformed": 0.1},
        "train": _TRAIN,
        "evaluate": _SAMPLING,
    },
    "v15_opg": {
        "convert": {"max_malformed": 0.1},
        "sample": _SAMPLING,
        "select": {"drop_groups": "none"},
        "train": {**_TRAIN, "global_batch_size": 2, "micro_batch_size": 2},
        "evaluate_before": _SAMPLING,
        "evaluate_after": _SAMPLING,
    },
}


@dataclass(frozen=True)
class Whole:
    """A run from start to end.

    Args:
        recipe: V1.5's small recipe.
        runs: Folder of its runs.
        answer: How the command ended, and what it said.
    """

    recipe: Path
    runs: Path
    answer: subprocess.CompletedProcess[str]


def write_recipes(folder: Path) -> Path:
    """Copy both recipes and make their laptop profiles small; returns V1.5's."""
    for name, stages in SMALL.items():
        copy(name, folder / f"{name}.yaml", force=True)
        profile = folder / "profiles" / f"{name}_laptop.yaml"
        value = read_yaml(profile)
        for stage, changes in stages.items():
            value["stages"].setdefault(stage, {}).update(changes)
        profile.write_text(yaml.safe_dump(value, sort_keys=False))
    return folder / "v15_opg.yaml"


def environment(**more: str) -> dict[str, str]:
    """The test's environment with this checkout first."""
    return {**os.environ, "PYTHONPATH": str(ROOT), **more}


def command(*words: str | Path, program: list[str] | None = None) -> list[str]:
    """``pclr-ms`` with some words, by this interpreter unless a program is given."""
    return [*(program or [sys.executable, "-m", "pcl_reasoner.cli"]), *map(str, words)]


def call(*words: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run ``pclr-ms`` to its end."""
    return subprocess.run(
        command(*words), cwd=cwd, env=environment(), capture_output=True, text=True
    )


def manifests(runs: Path) -> dict[str, dict[str, Any]]:
    """``recipe/stage`` -> manifest of every artifact that has its final name."""
    found = {}
    for path in sorted(runs.glob("*/*/manifest.json")):
        if not path.parent.name.endswith(".partial"):
            value = json.loads(path.read_text())
            found[f"{value['recipe']}/{value['name']}"] = value
    return found


def folder_of(runs: Path, title: str) -> Path:
    """The folder of a finished stage, the only one of its name."""
    (found,) = [path for path in runs.glob(f"{title}-*") if not path.name.endswith(".partial")]
    return found


def payload(runs: Path) -> dict[str, dict[str, str]]:
    """``recipe/stage`` -> file -> SHA-256, but for times, and the report, which shows its own.

    The files are read; the manifests are compared with them on the way.
    """
    found = {}
    for title in manifests(runs):
        folder = folder_of(runs, title)
        assert verify(folder) == []
        if not title.endswith("/report"):
            found[title] = {
                path.relative_to(folder).as_posix(): artifact.hash_file(path)
                for path in artifact.payload_files(folder)
                if path.name != artifact.SECONDS
            }
    return found


def processes(mark: str) -> dict[int, str]:
    """Process id -> command line of all living processes with the mark in their environment."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            marked = f"{MARK}={mark}\0".encode() in (folder / "environ").read_bytes()
            words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        # A zombie has no command line.
        if marked and words:
            found[int(folder.name)] = words.strip()
    return found


def assert_no_process_left(mark: str) -> None:
    """All processes of a run that has ended are gone, at the latest after some seconds."""
    deadline = time.monotonic() + 10
    while (left := processes(mark)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for process in left:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    assert not left, f"left behind: {left}"
