"""Rules that stop a run and problems answered on the way, by the real Trainer on a tiny model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fusion_server import FusionServer
from train_helpers import train_config, write_packs, write_policy

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.schema import SandboxPlacement
from pcl_reasoner.core.stage import StageContext
from pcl_reasoner.train.config import Probe
from pcl_reasoner.train.probe import PROBLEMS as PROBE_FILE
from pcl_reasoner.train.probe import Prober, read_files, write_files
from pcl_reasoner.train.stage import train
from pcl_reasoner.train.stopping import read_steps
from pcl_reasoner.verifiers.held_out import read_problems
from pcl_reasoner.verifiers.small_batch import Answered, grade_batch

SIZES = [5, 9, 14, 20, 7, 25, 30, 11, 6, 17, 22, 13, 8, 19, 28, 10]
PROBLEMS = [{"id": f"q{i}", "problem": "12-3=9", "answer": str(i)} for i in range(3)]
DOUBLES = {"tests": {"format": "functional", "entry": "f", "cases": [{"args": [3], "out": 6}]}}
PROBE = {"every": 3, "problems": 2, "n": 2, "max_new_tokens": 6, "max_model_len": 64}
STEPS = 7


def run(folder: Path, inputs: dict[str, Path], **changes: Any) -> tuple[list[Any], Path]:
    output = folder / "train.partial"
    output.mkdir(parents=True, exist_ok=True)
    settings = {"epochs": 2, "max_steps": STEPS, "learning_rate": 1e-3, "checkpoint_steps": 2}
    config = train_config(loss="opg", **settings | changes)
    train(config, inputs, output, StageContext("train", output / "quarantined.jsonl"))
    return read_steps(output / "metrics.jsonl"), output


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("inputs")
    problems = folder / "problems.jsonl"
    problems.write_text("".join(json.dumps(one) + "\n" for one in PROBLEMS))
    return {
        "policy": write_policy(folder / "policy"),
        "packs": write_packs(folder / "packs", SIZES),
        "probe": problems,
    }


@pytest.mark.slow
def test_a_stopped_run_says_why_and_goes_on_where_it_is_not_stopped(
    tmp_path: Path, inputs: dict[str, Path]
) -> None:
    """With a probe, which changes no loss. The step that a rule stops at leaves no checkpoint.

    As a step's line comes before its checkpoint, and a run that is killed between misses no line.
    """
    rule = {"correct_share_below": 1.0, "window": 2}
    each = {"checkpoint_steps": 1, "probe": PROBE}
    with pytest.raises(StageError) as stopped:
        run(tmp_path / "a", inputs, stop_if=rule, **each)
    said = str(stopped.value)
    output = tmp_path / "a" / "train.partial"
    made = read_steps(output / "metrics.jsonl")
    assert f"stopped at step {len(made)}: " in said and "(stop_if.correct_share_below)" in said
    assert 4 <= len(made) < STEPS
    assert f"resumes from step {len(made) - 1}, its last checkpoint" in said

    records, output = run(tmp_path / "a", inputs, **each)
    assert records[: len(made)] == made
    plain, without = run(tmp_path / "b", inputs)
    assert records == plain
    assert [record["step"] for record in records] == list(range(1, STEPS + 1))
    weights = "checkpoint/model.safetensors"
    assert (output / weights).read_bytes() == (without / weights).read_bytes()
    assert not (output / "stopped.txt").exists() and not (without / "probe.jsonl").exists()

    answers = [json.loads(line) for line in (output / "probe.jsonl").read_text().splitlines()]
    assert [answer["step"] for answer in answers] == [0, 3, 6]
    assert {(one["problems"], one["responses"]) for one in answers} == {(2, 4)}
    assert all(0 < one["mean_length"] <= 6 for one in answers)
    fresh = asked(inputs["policy"])
    assert {"step": 0, **fresh} == answers[0]


def asked(policy: Path, changed: float = 0.0) -> dict[str, Any]:
    """A prober on the policy's own weights, in this process."""
    from pcl_reasoner.weights.float32 import read_weights

    weights = read_weights(policy)
    prober = Prober(Probe(**PROBE), policy, PROBLEMS[:2])
    first = prober.ask(weights)
    assert prober.ask(weights) == first
    if changed:
        # Only the token that ends a response is left to be drawn.
        head = np.zeros_like(weights["lm_head.weight"])
        head[prober.dialogue.ends[0]] = changed
        norm = np.ones_like(weights["model.norm.weight"])
        other = weights | {"lm_head.weight": head, "model.norm.weight": norm}
        return prober.ask(other)
    return first


def test_the_weights_that_are_given_answer(inputs: dict[str, Path]) -> None:
    first = asked(inputs["policy"])
    assert first["accuracy"] == 0.0
    other = asked(inputs["policy"], changed=50.0)
    # A response's logit of the end is ±50·Σ h: half of all hidden states end at once.
    assert other["mean_length"] != first["mean_length"]


def test_problems_are_the_first_of_a_file_and_need_an_answer(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "problems.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in PROBLEMS))
    assert read_problems(path, 2) == PROBLEMS[:2] == read_problems(tmp_path, 2)
    table = [{"problem_id": "a", "problem": "1+1", "ground_truth": "2", "pass_rate": 0.5}]
    pq.write_table(pa.Table.from_pylist(table), tmp_path / "clean.parquet")
    assert read_problems(tmp_path, 5) == [{"id": "a", "problem": "1+1", "answer": "2"}]
    path.write_text('{"id": 1, "problem": "1+1", "answer": ""}\n')
    with pytest.raises(StageError, match="line 1: no answer or ground_truth"):
        read_problems(path, 2)


def test_problems_of_other_kinds_keep_their_checks(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    checks = {"tests": {"format": "assert", "cases": ["assert f(1) == 2"]}}
    rows = [
        {"problem_id": "a", "problem": "p", "ground_truth": "", "kind": "code"},
        {"problem_id": "b", "problem": "q", "ground_truth": "2", "kind": "math"},
    ]
    table = [{**row, "checks": json.dumps(checks) if row["kind"] == "code" else ""} for row in rows]
    pq.write_table(pa.Table.from_pylist(table), tmp_path / "clean.parquet")
    code, math = read_problems(tmp_path, 5)
    assert math == {"id": "b", "problem": "q", "answer": "2"}
    assert code == {
        "id": "a",
        "problem": "p",
        "answer": "",
        "kind": "code",
        "checks": json.dumps(checks),
    }


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"kind": "codee"}, r"problem b \(.*line 2\) has the kind 'codee'.* mean 'code'\?"),
        ({"kind": "chat"}, "line 2.* has the kind 'chat', expected one of math"),
        ({"checks": ""}, "no answer or ground_truth"),
        ({"checks": '{"instructions": []}'}, "has the kind code and has no tests"),
        ({"kind": "instruction"}, "checks.instructions"),
    ],
)
def test_a_problem_that_cannot_be_graded_is_refused_before_training(
    tmp_path: Path, changed: dict[str, str], message: str
) -> None:
    problem = {"id": "b", "problem": "write f", "kind": "code", "checks": json.dumps(DOUBLES)}
    path = tmp_path / "problems.jsonl"
    path.write_text(json.dumps(PROBLEMS[0]) + "\n" + json.dumps(problem) + "\n")
    assert read_problems(path, 2)[1] == {**problem, "answer": ""}
    path.write_text(json.dumps(PROBLEMS[0]) + "\n" + json.dumps({**problem, **changed}) + "\n")
    with pytest.raises(StageError, match=message):
        read_problems(path, 2)


def test_programs_run_where_the_launch_file_says(tmp_path: Path, inputs: dict[str, Path]) -> None:
    service = FusionServer()
    placement = SandboxPlacement(engine="http", urls=[service.url], workers=1)
    problem = {"id": "b", "problem": "1+1", "kind": "code", "checks": json.dumps(DOUBLES)}
    write_files(tmp_path, [{**problem, "answer": ""}], placement)
    written = read_files(tmp_path / PROBE_FILE)
    assert written == ([{**problem, "answer": ""}], placement)
    prober = Prober(Probe(**PROBE), inputs["policy"], *written)
    text = "<think>x</think>```python\ndef f(x):\n    return 2 * x\n```"
    assert prober.sandboxes is not None
    with prober.sandboxes as sandboxes:
        answered = Answered("b", "code", "", DOUBLES, text, "stop")
        assert grade_batch([answered], sandboxes)[0].outcome == "correct"
    assert len(service.asked) == 1
    service.close()


def test_a_probe_needs_problems_a_cpu_and_the_embedded_engine(
    tmp_path: Path, inputs: dict[str, Path]
) -> None:
    given = {name: path for name, path in inputs.items() if name != "probe"}
    with pytest.raises(StageError, match="give the stage the input `probe`"):
        run(tmp_path, given, probe=PROBE)
    with pytest.raises(ValueError, match="evaluate exported checkpoints with a server"):
        train_config(probe={**PROBE, "engine": "server"})
    with pytest.raises(ValueError, match="draws on a CPU, got device Ascend"):
        train_config(probe=PROBE, device="Ascend", data_parallel=2)
