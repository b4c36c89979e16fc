"""``pclr-ms`` that is killed at one moment inside a stage's commit.

    python end_to_end_kill_at.py whole_manifest v15_opg/pack run recipe.yaml …

The moments, in the order in which they come; each is right after an fsync:

    half_manifest    the manifest is written under its temporary name
    whole_manifest   the manifest has its name, the folder is still ``….partial``
    renamed          the folder has its name
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from pcl_reasoner.cli.main import main
from pcl_reasoner.core import artifact


def is_moment(moment: str, title: str, synced: Path) -> bool:
    """Is it now, right after ``synced`` has been made durable?"""
    recipe, stage = title.split("/")
    partial = synced if moment == "whole_manifest" else synced.parent
    ours = partial.name.startswith(f"{stage}-") and partial.parent.name == recipe
    if moment == "half_manifest":
        return ours and synced.name.startswith(".manifest.json.")
    if moment == "whole_manifest":
        return ours and (synced / "manifest.json").exists()
    done = [path for path in synced.glob(f"{stage}-*/manifest.json") if ".partial" not in str(path)]
    return synced.name == recipe and bool(done)


def install(moment: str, title: str) -> None:
    """Kill this process with SIGKILL when the moment has come."""
    plain = artifact.fsync

    def fsync(path: Path) -> None:
        plain(path)
        if is_moment(moment, title, path):
            os.kill(os.getpid(), signal.SIGKILL)

    artifact.fsync = fsync


if __name__ == "__main__":
    install(sys.argv[1], sys.argv[2])
    raise SystemExit(main(sys.argv[3:]))
