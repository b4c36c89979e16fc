"""Checks of committed artifacts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pcl_reasoner.core import artifact


def verify(folder: Path) -> list[str]:
    """Compare an artifact's files with its manifest.

    Returns:
        One sentence per file that is missing, added or changed; empty if there is none.
    """
    manifest = artifact.read_manifest(folder) or {"files": {}}
    recorded: dict[str, dict[str, Any]] = manifest["files"]
    present = {path.relative_to(folder).as_posix(): path for path in artifact.payload_files(folder)}
    problems = [f"{name}: missing" for name in recorded if name not in present]
    problems += [f"{name}: not in the manifest" for name in present if name not in recorded]
    for name, path in present.items():
        if name in recorded and artifact.hash_file(path) != recorded[name]["sha256"]:
            problems.append(f"{name}: content differs from the manifest")
    return problems
