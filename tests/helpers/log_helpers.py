"""Logs of running stages, changed as no stage would: with checksums that fit."""

from __future__ import annotations

import json
from pathlib import Path

from pcl_reasoner.core.append_log import AppendLog


def rewrite(file: Path, changes: dict[str, str]) -> None:
    """Replace texts in the JSON of every record of a log."""
    found = []
    for record in AppendLog(file):
        text = json.dumps(record)
        for old, new in changes.items():
            text = text.replace(old, new)
        found.append(json.loads(text))
    file.unlink()
    log = AppendLog(file)
    log.append(found)
    log.close()
