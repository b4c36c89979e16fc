"""The stage ``prove`` with its pass on a host, and a Python that tells when the pass has begun.

python forward_on_host.py '{"root": …, "output": …, "placement": {…}, "start": "ssh"}'
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from pcl_reasoner.core.schema import Placement
from pcl_reasoner.core.stage import Counts, StageContext
from pcl_reasoner.prove.config import ProveConfig
from pcl_reasoner.prove.stage import prove

HOST = "127.0.0.1"
TELL = """
import json, os, pathlib, sys, time

if "pcl_reasoner.worker.forward_each" in sys.orig_argv and os.environ.get("TELL"):
    seen = pathlib.Path(os.environ["TELL"])
    seen.with_suffix(".part").write_text(json.dumps({"pid": os.getpid(), **os.environ}))
    seen.with_suffix(".part").rename(seen)
    while os.path.exists(f"{seen}.hold"):
        time.sleep(0.05)
"""


def telling(folder: Path, hold: bool = False) -> tuple[Path, dict[str, str]]:
    """Return the file that gets the pass's environment and process, and variables for it.

    Args:
        folder: A new one.
        hold: True if the pass must wait there for ever.
    """
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(TELL)
    seen = folder / "seen.json"
    if hold:
        Path(f"{seen}.hold").touch()
    return seen, {"PYTHONPATH": str(folder), "TELL": str(seen)}


def proved(
    inputs: dict[str, Path],
    output: Path,
    config: dict[str, Any],
    placement: dict[str, Any],
    start: str | None,
) -> Counts:
    """Run the stage with a cache of its own."""
    output.mkdir(parents=True)
    context = StageContext(
        "prove",
        output / "quarantined.jsonl",
        Placement(**placement),
        cache=output.with_name(f"{output.name}.cache"),
        start=start,
    )
    return prove(ProveConfig(**config), inputs, output, context)


def main() -> None:
    """Run the stage as the arguments say."""
    given = json.loads(sys.argv[1])
    inputs = {name: Path(path) for name, path in given["inputs"].items()}
    output = Path(given["output"])
    proved(inputs, output, given["config"], given["placement"], given["start"])


def words(
    inputs: dict[str, Path], output: Path, config: dict[str, Any], placement: dict[str, Any]
) -> list[str]:
    """Return the command that runs the stage with ``--start ssh`` in a process of its own."""
    given = {
        "inputs": {name: os.fspath(path) for name, path in inputs.items()},
        "output": os.fspath(output),
        "config": config,
        "placement": placement,
        "start": "ssh",
    }
    return [sys.executable, os.fspath(__file__), json.dumps(given)]


if __name__ == "__main__":
    main()
