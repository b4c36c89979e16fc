"""The files of a training that was measured: metrics.jsonl, seconds.jsonl, mindformers.yaml."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pcl_reasoner.core.files import yaml_text


def write_run(
    folder: Path,
    times: list[dict[str, Any]],
    config: dict[str, Any] | None = None,
    responses: int = 4,
    tokens: int = 50,
) -> Path:
    """The files of a run; one response of a step is incorrect."""
    folder.mkdir(exist_ok=True)
    verdicts = {"correct_count": responses - 1, "incorrect_count": 1}
    counts = {"tokens": responses * tokens, **verdicts}
    metrics = [{"step": one["step"], "loss": 0.5, **counts} for one in times]
    for name, lines in (("metrics.jsonl", metrics), ("seconds.jsonl", times)):
        (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    if config is not None:
        (folder / "mindformers.yaml").write_text(yaml_text(config))
    return folder / "metrics.jsonl"


def times(step: float, after: float = 1.0, save: float = 0.0) -> list[dict[str, Any]]:
    """Six steps, the first of them slow, with a save after steps 2, 4 and 6."""
    found = [{"step": 1, "seconds": 50 + step, "after": after, "before": 300.0}]
    for number in range(2, 7):
        pause = after + (save if number % 2 == 0 else 0.0)
        found.append({"step": number, "seconds": step, "after": pause})
    del found[-1]["after"]  # nothing follows the last step
    return found
