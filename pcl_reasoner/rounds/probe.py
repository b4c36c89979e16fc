"""Answers the held-out problems with the weights of a round: a line of probe.jsonl.

    {"round": 5, "n": 8, "problems": ["5c18…", …], "kinds": ["math", "code", …],
     "correct": [3.0, 8.0, …], "accuracy": 0.61, "se": 0.03, "mean_length": 61.2,
     "stop_ratio": 0.98}

``correct`` is the sum of the rewards of a problem's n responses. For a problem whose responses are
right or wrong, this is the number of right ones. Every probe uses the same random streams.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from pcl_reasoner.core.artifact import write_atomically
from pcl_reasoner.core.json_lines import whole_lines
from pcl_reasoner.rounds.batch import Graded
from pcl_reasoner.rounds.config import RlConfig
from pcl_reasoner.rounds.grading import Graders
from pcl_reasoner.rounds.making import Answers, Sampler, settings_of
from pcl_reasoner.rounds.plateau import mean_and_error
from pcl_reasoner.rounds.pool import Pool

PROBE = "probe.jsonl"


def read_probes(path: Path) -> list[dict[str, Any]]:
    """Return the probes so far; an incomplete last line is left out."""
    return whole_lines(path, "The disk or a person changed it: delete the folder to start again.")


def probe(
    number: int,
    output: Path,
    config: RlConfig,
    held_out: Pool,
    sampler: Sampler,
    graders: Graders,
) -> dict[str, Any]:
    """Answer the held-out problems, and add a line to probe.jsonl.

    Args:
        number: The round that the present weights sample next.
        output: The stage's folder.
        config: The stage's settings.
        held_out: The held-out problems.
        sampler: Draws the responses.
        graders: What grades them.
    """
    folder = output / "probe"
    if not (folder / f"{number}").exists():
        shutil.rmtree(folder, ignore_errors=True)  # of an earlier probe
        (folder / f"{number}").mkdir(parents=True)
    settings = settings_of(config, config.seed, config.probe.n)
    log_folder = folder / f"{number}"
    answers = Answers(sampler, graders, held_out, held_out.names, log_folder, settings, False)
    line = _line(number, held_out, list(answers.groups()), config.probe.n)
    path = output / PROBE
    lines = [*read_probes(path), line]
    write_atomically(path, "".join(json.dumps(one) + "\n" for one in lines))
    shutil.rmtree(folder)
    return line


def _line(number: int, held_out: Pool, groups: list[list[Graded]], n: int) -> dict[str, Any]:
    correct = [sum(one.earned for one in group if one.answered) for group in groups]
    responses = [one for group in groups for one in group]
    accuracy, se = mean_and_error([count / n for count in correct])
    stopped = sum(one.record["finish_reason"] == "stop" for one in responses)
    return {
        "round": number,
        "n": n,
        "problems": held_out.names,
        "kinds": held_out.kinds(),
        "correct": correct,
        "accuracy": accuracy,
        "se": se,
        "mean_length": sum(one.record["n_tokens"] for one in responses) / len(responses),
        "stop_ratio": stopped / len(responses),
    }
