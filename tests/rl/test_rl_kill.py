"""On-policy training, killed over and over and taken up again: the same bytes as without a kill.

43 kills by SIGKILL, in the order in which their points come; each resumed run is killed at the
next point. About seven minutes on two cores.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import reward_model
from end_to_end_helpers import MARK, assert_no_process_left
from paths import HELPERS
from rl_stage_helpers import lines_of, payload_of, write_inputs
from sandbox_helpers import need

pytestmark = [pytest.mark.slow, pytest.mark.long]

ROUNDS, CHECKPOINT_ROUNDS = 4, 2
# 8 problems, of which a round asks 7: every kind is in it. 21 responses are 4 batches.
SETTINGS: dict[str, Any] = {
    "max_rounds": ROUNDS,
    "checkpoint_rounds": CHECKPOINT_ROUNDS,
    "queries": 7,
    "n": 3,
    "batch": 6,
    "keep_weights": 1,
    "probe": {"every": 2, "problems": 8, "n": 1},
}
KINDS = ("math", "instruction", "code", "chat")
PATIENCE = 300
"""Seconds after which a point is not reached any more."""
Point = dict[str, Any]


@dataclass(frozen=True)
class Kill:
    """A kill.

    Args:
        name: In words.
        point: As in killing/sitecustomize.py.
        redrawn: Batches of responses that are lost by it, and drawn again.
    """

    name: str
    point: Point
    redrawn: int = 0


def half(name: str) -> Kill:
    """Half of a file is written under its temporary name."""
    return Kill(f"half of {name}", {"renamed": name, "when": "before", "cut": True})


def before(name: str) -> Kill:
    """All is written under the temporary name."""
    return Kill(f"before {name}", {"renamed": name, "when": "before"})


def after(name: str) -> Kill:
    """The file or folder has its name."""
    return Kill(f"after {name}", {"renamed": name})


def torn(log: str, number: int, redrawn: int = 0) -> Kill:
    """The last line of an append to a log is cut off."""
    point = {"module": "pcl_reasoner.core.append_log", "call": "AppendLog.append"}
    return Kill(f"torn {log}", point | {"file": log, "number": number, "cut": True}, redrawn)


def call(module: str, name: str, number: int = 1, when: str = "before", **others: Any) -> Kill:
    """Before or after a function."""
    point = {"module": f"pcl_reasoner.{module}", "call": name, "number": number, "when": when}
    return Kill(f"{when} {name} {number}", point | others)


def gone(folder: str) -> Kill:
    """Some files of a folder that is being removed are gone."""
    return Kill(f"half of {folder} is gone", {"removed": folder, "cut": True})


def kills(output: Path) -> list[Kill]:
    """In the order of the stage."""
    model = f"{output}/rounds/00000/.weights"
    checkpoints = f"{output}/work/checkpoint/rank_0/*.safetensors"
    slices = "rank_0/policy_rank_0.safetensors"
    mindformers = {"module": "mindformers.core.callback.callback", "when": "after"}
    saved = {"call": "CheckpointMonitor.save_checkpoint", "cut": checkpoints}
    return [
        torn("probe/0/responses.partial.jsonl", 1, redrawn=1),
        torn("probe/0/scores.partial.jsonl", 1),
        half("probe.jsonl"),
        gone("probe"),
        half("00000/queries.json"),
        after("00000/queries.json"),
        torn("00000/responses.partial.jsonl", 2, redrawn=1),
        torn("00000/tests.partial.jsonl", 1),
        torn("00000/scores.partial.jsonl", 1),
        half("00000/responses.parquet"),
        half("00000/figures.json"),
        half("00000/rows/data-00000-of-00001.arrow"),
        half("00000/round.json"),
        after("00000/round.json"),
        call("trainer.step", "PclMetrics.write"),
        call("trainer.round_callbacks", "PclRounds._write_slices", alone=True),
        half(f"00000/{slices}"),
        call("trainer.round_callbacks", "PclRounds._write_slices", when="after"),
        call("weights.conversion", "write_model", when="after", cut=model),
        before("00000/weights.json"),
        before("00000/weights"),
        after("00000/weights"),
        call("sample.local", "LocalDrawer.load", 1),
        torn("00001/responses.partial.jsonl", 3, redrawn=1),
        after("00001/round.json"),
        after(f"00001/{slices}"),
        Kill("half of a checkpoint", mindformers | saved),
        call("trainer.round_callbacks", "PclRoundCheckpoint.step_end", 5, when="after"),
        gone("00000/weights"),
        torn("probe/2/responses.partial.jsonl", 1, redrawn=1),
        half("00002/responses.parquet"),
        after("00002/weights.json"),
        call("rl.loop", "Loop._check_mismatch", 1),
        after("00003/round.json"),
        half("end.json"),
        after("end.json"),
        half("responses/part-00000.parquet"),
        half("visits.parquet"),
        half("rounds.parquet"),
        call(
            "weights.conversion",
            "write_opened",
            when="after",
            cut=f"{output}/checkpoint/model.safetensors",
        ),
        half("plateau.json"),
        after("plateau.json"),
        gone("00003/weights"),
    ]


def start(output: Path, inputs: dict[str, Path], trace: Path, point: Point | None = None) -> Any:
    words = [
        sys.executable,
        str(HELPERS / "rl_kill_run.py"),
        str(output),
        json.dumps({name: str(path) for name, path in inputs.items()}),
        json.dumps(SETTINGS),
    ]
    path = f"{HELPERS / 'killing'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    given = {} if point is None else {"PCLR_TEST_KILL": json.dumps(point)}
    environment = {**os.environ, "PYTHONPATH": path, "PCLR_TEST_TRACE": str(trace), **given}
    return subprocess.run(
        words,
        env={**environment, MARK: str(output)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def whole_run(output: Path, inputs: dict[str, Path], trace: Path) -> dict[str, Any]:
    """Run to the end; returns counts and warnings."""
    answer = start(output, inputs, trace)
    assert answer.returncode == 0, answer.stderr
    assert_no_process_left(str(output))
    found: dict[str, Any] = json.loads(answer.stdout.splitlines()[-1])
    return found


def cut_off(kill: Kill, output: Path, inputs: dict[str, Path], trace: Path) -> None:
    """Take the stage up, and kill it at the point."""
    began = time.monotonic()
    answer = start(output, inputs, trace, kill.point)
    if kill.point.get("alone"):
        # The training process was killed, and the runner says so.
        assert answer.returncode == 1 and "SIGKILL" in answer.stderr, f"{kill.name}: {answer}"
    else:
        assert answer.returncode == -signal.SIGKILL, f"{kill.name}: {answer}"
    assert_no_process_left(str(output))
    assert "killed" in lines_of(trace)[-1], kill.name
    print(f"{kill.name}: {time.monotonic() - began:.1f} s")


def drawn(trace: Path) -> Counter[str]:
    """How often each batch of responses was drawn."""
    lines = [one for one in lines_of(trace) if "drawn" in one]
    return Counter(json.dumps([one["seed"], one["drawn"]]) for one in lines)


def updates(trace: Path) -> list[list[int]]:
    """The rounds' numbers, from 1, that each training process made, in the order of the starts."""
    found: dict[int, list[int]] = {}
    for one in lines_of(trace):
        if "updated" in one:
            found.setdefault(one["process"], []).append(one["updated"])
    return list(found.values())


def test_the_same_bytes_as_without_a_kill(tmp_path: Path) -> None:
    need("unshare")
    inputs = write_inputs(tmp_path / "inputs", KINDS, count=2)
    inputs["reward_model"] = reward_model.write(tmp_path / "inputs" / "reward_model")
    traces = tmp_path / "whole.jsonl", tmp_path / "killed.jsonl"
    whole = tmp_path / "whole" / "rl.partial"
    expected = whole_run(whole, inputs, traces[0])
    assert updates(traces[0]) == [[1, 2, 3, 4]]

    output = tmp_path / "killed" / "rl.partial"
    made = kills(output)
    assert len(made) >= 24
    for kill in made:
        cut_off(kill, output, inputs, traces[1])
    assert whole_run(output, inputs, traces[1]) == expected
    assert payload_of(output) == payload_of(whole)

    # Nothing was sampled twice but the batches in flight.
    again = drawn(traces[1])
    again.subtract(drawn(traces[0]))
    assert min(again.values()) == 0
    assert sum(again.values()) == sum(kill.redrawn for kill in made)
    # At most the rounds since the last checkpoint were made again.
    last = 0
    for numbers in updates(traces[1]):
        assert numbers == list(range(numbers[0], numbers[-1] + 1))
        assert last - CHECKPOINT_ROUNDS < numbers[0] <= last + 1
        last = max(last, *numbers)
    assert last == ROUNDS
