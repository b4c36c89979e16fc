"""The drill's log: one line of JSON per trial.

{"kind": "kills", "seed": "6921b3f0-kills-17", "code": "1a2b3c4d5e6f", "day": "2026-11-23",
 "verdict": "same result", "target": "v15_opg/pack missing, KILL at operation 7",
 "seconds": 3.1, "note": "", "commands": […]}
"""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

from trial import Outcome

_lock = threading.Lock()


def read(path: Path) -> list[dict[str, Any]]:
    """All trials; of one that was repeated the last line counts."""
    found: dict[str, dict[str, Any]] = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            one = json.loads(line)
        except ValueError:  # the drill was killed while it wrote
            continue
        found[one["seed"]] = one
    return list(found.values())


def add(path: Path, kind: str, seed: str, code: str, outcome: Outcome, seconds: float) -> None:
    """Add a trial."""
    line = {
        "kind": kind,
        "seed": seed,
        "code": code,
        "day": time.strftime("%Y-%m-%d"),
        "verdict": outcome.verdict,
        "target": outcome.target,
        "seconds": round(seconds, 1),
        "note": outcome.note,
        "commands": outcome.commands,
    }
    with _lock, path.open("a") as handle:
        handle.write(json.dumps(line) + "\n")
