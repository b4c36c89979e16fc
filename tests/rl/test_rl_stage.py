"""The stage ``rl`` with the local sampler and MindFormers' Trainer: its artifact, number by number.

About 55 s on two cores: five runs of four rounds or fewer.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from rl_stage_helpers import (
    HAS_SANDBOX,
    lines_of,
    payload_of,
    run_rl,
    write_inputs,
)
from safetensors.numpy import load_file
from transformers import AutoModelForCausalLM

from pcl_reasoner.core.artifact import fingerprint
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.stage import Counts, StageContext
from pcl_reasoner.inference.dialogue import Dialogue, Problem
from pcl_reasoner.pack.arrow_folder import read_arrow_folder
from pcl_reasoner.rl.solved import SolvedConfig, solved
from pcl_reasoner.rl.stage import rl
from pcl_reasoner.rounds.config import RlConfig
from pcl_reasoner.rounds.pool import queries_of
from pcl_reasoner.train.config import ExportConfig
from pcl_reasoner.train.stage import export
from pcl_reasoner.train.stopping import read_steps

pytestmark = pytest.mark.slow
ROUNDS, N, QUERIES = 4, 4, 4


@dataclass(frozen=True)
class Run:
    """What a run of the stage was given and left."""

    output: Path
    inputs: dict[str, Path]
    counts: Counts
    context: StageContext
    config: RlConfig

    @cached_property
    def rounds(self) -> list[dict[str, Any]]:
        return pq.read_table(self.output / "rounds.parquet").to_pylist()

    @property
    def responses(self) -> list[dict[str, Any]]:
        return pq.read_table(self.output / "responses").to_pylist()

    @cached_property
    def visits(self) -> list[dict[str, Any]]:
        return pq.read_table(self.output / "visits.parquet").to_pylist()

    @cached_property
    def probes(self) -> list[dict[str, Any]]:
        return lines_of(self.output / "probe.jsonl")

    @cached_property
    def plateau(self) -> dict[str, Any]:
        return json.loads((self.output / "plateau.json").read_text())

    def of_round(self, number: int) -> list[dict[str, Any]]:
        return [one for one in self.responses if one["round"] == number]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_inputs(tmp_path_factory.mktemp("inputs"))


def run(folder: Path, inputs: dict[str, Path], **changes: Any) -> Run:
    output = folder / "rl.partial"
    return Run(output, inputs, *run_rl(output, inputs, **changes))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, inputs: dict[str, Path]) -> Run:
    return run(tmp_path_factory.mktemp("made"), inputs)


def test_the_artifact_holds_its_parts_and_nothing_else(made: Run) -> None:
    found = {path for path in payload_of(made.output) if not path.startswith("rounds/")}
    assert found == {
        "checkpoint/model.safetensors",
        "metrics.jsonl",
        "mindformers.yaml",
        "plateau.json",
        "probe.jsonl",
        "prompt.json",
        "responses/part-00000.parquet",
        "rounds.parquet",
        "visits.parquet",
    }
    assert [one["round"] for one in lines_of(made.output / "seconds.jsonl")] == [0, 1, 2, 3]
    folders = sorted((made.output / "rounds").iterdir())
    assert [folder.name for folder in folders] == ["00000", "00001", "00002", "00003"]
    for folder, one in zip(folders, made.rounds, strict=True):
        files = {"round.json", "weights.json", *(["rows"] if one["trained"] else [])}
        assert {path.name for path in folder.iterdir()} == files
    # Nothing of this machine: the same settings make the same file elsewhere.
    assert str(made.output.parent) not in (made.output / "mindformers.yaml").read_text()


def test_counts_and_the_end(made: Run) -> None:
    assert (made.counts.unit, made.counts.read, made.counts.kept) == ("responses", 64, 64)
    assert made.counts.info == {"stopped": "max_rounds", "rounds": 4, "gain": None, "se": None}
    # Three probes are no window of ten.
    assert made.plateau["fit"] == {"rounds": [], "intercept": None, "slope": None}
    assert (made.plateau["stopped"], made.plateau["responses"]) == ("max_rounds", 64)


def test_each_round_asks_its_problems(made: Run) -> None:
    names = sorted(
        pq.read_table(made.inputs["problems"] / "clean.parquet")["problem_id"].to_pylist()
    )
    for number in range(ROUNDS):
        asked = Counter(one["problem_id"] for one in made.of_round(number))
        assert asked == dict.fromkeys(queries_of(names, made.config, number), N)
    keys = [(one["round"], one["problem_id"], one["sample_index"]) for one in made.responses]
    assert keys == sorted(set(keys)) and len(keys) == ROUNDS * QUERIES * N


def right(one: dict[str, Any]) -> bool:
    """Whether a response earns its reward, by its text alone."""
    answer = one["response"].rpartition("</think>")[2]
    if "</think>" not in one["response"] or one["finish_reason"] != "stop":
        return False
    if one["kind"] == "math":
        return answer.endswith("\\boxed{8}") and answer.count("boxed") == 1
    return "," not in answer


def test_rewards_of_each_kind(made: Run) -> None:
    """Programs are tested in the stage: see below."""
    found = [one for one in made.responses if one["kind"] != "code"]
    assert {one["kind"] for one in found} == {"math", "instruction"}
    for one in found:
        assert one["reward"] == float(right(one)), one["response"]
    for kind in ("math", "instruction"):
        assert 0 < sum(one["reward"] for one in found if one["kind"] == kind) < len(found)


@pytest.mark.skipif(not HAS_SANDBOX, reason="no sandbox can be had here")
def test_programs_are_tested(made: Run) -> None:
    programs = [one for one in made.responses if one["kind"] == "code"]
    by_verdict = defaultdict(list)
    for one in programs:
        by_verdict[one["verdict"]].append(one["response"])
    block = "```python\r\ndef f(x): return x+{}\n\n````"
    assert {*by_verdict["correct"]} == {"<think></think>" + block.format(1)}
    assert "<think></think>" + block.format(2) in by_verdict["incorrect"]
    failed = next(one for one in programs if one["response"].endswith(block.format(2)))
    assert json.loads(failed["detail"])["text"] == "5"  # of f(3), expected 4


def advantages_by_hand(group: list[dict[str, Any]]) -> list[float]:
    """overlong zero, normalise std."""
    rewards = np.array([one["reward"] for one in group])
    assert all(one["reward"] == 0 for one in group if one["finish_reason"] == "length")
    spread = rewards.std()
    if spread == 0:
        return [0.0] * len(group)
    return [
        0.0
        if one["finish_reason"] == "length"
        else float((one["reward"] - rewards.mean()) / spread)
        for one in group
    ]


def test_advantages_are_of_their_groups(made: Run) -> None:
    for number in range(ROUNDS):
        of_round = made.of_round(number)
        for first in range(0, len(of_round), N):
            group = of_round[first : first + N]
            assert len({one["problem_id"] for one in group}) == 1
            found = [one["advantage"] for one in group]
            assert found == pytest.approx(advantages_by_hand(group), abs=1e-6)


def test_the_numbers_of_rounds_are_those_of_the_responses(made: Run) -> None:
    assert [one["round"] for one in made.rounds] == [0, 1, 2, 3]
    for one in made.rounds:
        found = made.of_round(one["round"])
        trained = [row for row in found if row["advantage"] != 0]
        assert one["responses"] == one["segments"] == len(found) == QUERIES * N
        assert (one["failed"], one["groups_left_out"]) == (0, 0)
        reasons = Counter(row["finish_reason"] for row in found)
        assert (one["overlong"], one["stopped"]) == (reasons["length"], reasons["stop"])
        assert (one["trained"], one["no_advantage"]) == (len(trained), len(found) - len(trained))
        assert one["tokens"] == sum(len(row["token_ids"]) for row in found)
        assert one["trained_tokens"] == sum(len(row["token_ids"]) for row in trained)
        assert one["mean_reward"] == pytest.approx(sum(row["reward"] for row in found) / len(found))
        # The ratio is 1, so the loss is minus the mean advantage.
        loss = -sum(row["advantage"] for row in found) / len(found)
        assert one["loss"] == pytest.approx(loss, abs=1e-6)
        assert (one["grad_norm"] > 0) == bool(trained)
        assert one["learning_rate"] == pytest.approx(1e-3)
        kinds = json.loads(one["kinds"])
        assert {kind: value["responses"] for kind, value in kinds.items()} == Counter(
            row["kind"] for row in found
        )
        for kind, value in kinds.items():
            rewards = [row["reward"] for row in found if row["kind"] == kind]
            assert value["reward"] == value["correct"] == sum(rewards)
    assert sum(one["trained"] > 0 for one in made.rounds) >= 3


def test_every_round_was_sampled_by_the_weights_that_it_trains(made: Run) -> None:
    """The trainer's log-probs are the sampler's; each update changes the weights."""
    trained = [one for one in made.rounds if one["trained"]]
    for one in trained:
        assert one["mismatch_max"] < 1e-4
        assert abs(one["mismatch"]) <= one["mismatch_abs"] <= one["mismatch_max"]
    hashes = [
        json.loads((made.output / "rounds" / f"{number:05d}" / "weights.json").read_text())[
            "sha256"
        ]
        for number in range(ROUNDS)
    ]
    assert len({*hashes}) == ROUNDS


def test_the_first_rounds_log_probs_are_the_policys_by_transformers(made: Run) -> None:
    policy = made.inputs["policy"]
    model = AutoModelForCausalLM.from_pretrained(policy, dtype=torch.float64).eval()
    dialogue = Dialogue(policy, made.config)
    texts = pq.read_table(made.inputs["problems"] / "clean.parquet").to_pylist()
    texts = {one["problem_id"]: one["problem"] for one in texts}
    for one in made.of_round(0):
        prompt = dialogue.prompt(Problem(one["problem_id"], texts[one["problem_id"]])).ids
        ids = one["token_ids"]
        with torch.no_grad():
            logits = model(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1]
        expected = logits.log_softmax(-1)[torch.arange(len(ids)), torch.tensor(ids)].tolist()
        assert one["sampled_log_probs"] == pytest.approx(expected, rel=1e-5, abs=1e-5)


def test_rows_are_the_responses_with_an_advantage(made: Run) -> None:
    for number in range(ROUNDS):
        trained = {
            (one["problem_id"], one["sample_index"]): one
            for one in made.of_round(number)
            if one["advantage"]
        }
        folder = made.output / "rounds" / f"{number:05d}"
        published = json.loads((folder / "round.json").read_text())["value"]
        assert published["segments"] == QUERIES * N
        rows = read_arrow_folder(folder / "rows").to_pylist() if trained else []
        assert published["rows"] == len(rows)
        assert published["micro_steps"] == max(1, math.ceil(len(rows) / made.config.rows))
        seen = {}
        for row in rows:
            keys = zip(row["problem_ids"], row["sample_indices"], strict=True)
            starts = [0, *row["actual_seq_len"]]
            for place, key in enumerate(keys):
                part = slice(starts[place], starts[place + 1])
                labels = [one for one in row["labels"][part] if one != -100]
                assert labels == trained[key]["token_ids"]
                assert row["advantages"][place] == trained[key]["advantage"]
                seen[key] = True
        assert seen.keys() == trained.keys()


def test_visits_are_of_the_responses(made: Run) -> None:
    assert len(made.visits) == ROUNDS * QUERIES
    for visit in made.visits:
        found = [
            one for one in made.of_round(visit["round"]) if one["problem_id"] == visit["problem_id"]
        ]
        rewards = [one["reward"] for one in found]
        assert visit["kind"] == found[0]["kind"]
        assert (visit["n"], visit["all_correct"]) == (N, all(rewards))
        assert visit["reward_mean"] == pytest.approx(sum(rewards) / N)
        assert visit["overlong"] == sum(one["finish_reason"] == "length" for one in found)


def test_probes_are_before_the_first_round_and_after_the_last(made: Run) -> None:
    assert [one["round"] for one in made.probes] == [0, 2, 4]
    names = sorted(
        pq.read_table(made.inputs["held_out"] / "clean.parquet")["problem_id"].to_pylist()
    )
    for one in made.probes:
        assert (one["n"], one["problems"]) == (2, names)
        shares = np.array(one["correct"]) / 2
        assert one["accuracy"] == pytest.approx(shares.mean())
        assert one["se"] == pytest.approx(shares.std(ddof=1) / len(shares) ** 0.5)
    assert any(one["correct"] != made.probes[0]["correct"] for one in made.probes)


def test_metrics_have_a_line_per_round(made: Run) -> None:
    records = read_steps(made.output / "metrics.jsonl")
    assert [record["step"] for record in records] == [1, 2, 3, 4]
    for record, one in zip(records, made.rounds, strict=True):
        assert (record["loss"], record["grad_norm"]) == (one["loss"], one["grad_norm"])
        assert record["tokens"] == one["trained_tokens"]


def test_another_batch_makes_the_same_responses_and_weights(
    made: Run, inputs: dict[str, Path], tmp_path: Path
) -> None:
    """Six responses were decoded together there, all of a round here."""
    again = run(tmp_path, inputs, batch=400)
    for one, other in zip(again.responses, made.responses, strict=True):
        # Matrix products of another number of rows may differ in their last bits.
        log_probs = other.pop("sampled_log_probs")
        assert one.pop("sampled_log_probs") == pytest.approx(log_probs, abs=2e-6)
        assert one == other
    weights = "checkpoint/model.safetensors"
    assert payload_of(again.output)[weights] == payload_of(made.output)[weights]


def test_a_finished_stage_changes_nothing(made: Run) -> None:
    before = payload_of(made.output)
    context = StageContext("rl", made.output / "quarantined.jsonl")
    assert rl(made.config, made.inputs, made.output, context) == made.counts
    assert payload_of(made.output) == before


def test_a_mismatch_above_its_limit_stops_the_stage_and_another_limit_resumes_it(
    made: Run, inputs: dict[str, Path], tmp_path: Path
) -> None:
    """The first round that trained is the one that is stopped at."""
    first = next(one for one in made.rounds if one["trained"])
    limit = first["mismatch_abs"] / 2
    with pytest.raises(
        StageError, match=rf"round {first['round']}: the trainer's log-probs differ"
    ):
        run(tmp_path, inputs, max_mismatch=limit)
    output = tmp_path / "rl.partial"
    assert not (output / "plateau.json").exists()
    assert len(read_steps(output / "metrics.jsonl")) == first["round"] + 1
    again = run(tmp_path, inputs, max_mismatch=1.0)
    assert payload_of(again.output) == payload_of(made.output)


def test_a_stop_rule_ends_the_stage_before_its_weights_are_used(
    inputs: dict[str, Path], tmp_path: Path
) -> None:
    """The process ends, although its loader waits for the next round already."""
    rule = {"correct_share_below": 1.0, "window": 1}
    with pytest.raises(StageError, match=r"training was stopped at step 2: .*correct_share_below"):
        run(tmp_path, inputs, stop_if=rule, skip_without_advantage=False)
    output = tmp_path / "rl.partial"
    assert len(read_steps(output / "metrics.jsonl")) == 2
    assert [one.parent.name for one in output.glob("rounds/*/weights")] == ["00000"]
    assert not (output / "rounds" / "00002").exists()


def test_a_training_process_that_fails_in_a_round_ends_the_stage(
    inputs: dict[str, Path], tmp_path: Path
) -> None:
    weights = tmp_path / "rl.partial" / "work" / "weights"
    weights.parent.mkdir(parents=True)
    weights.write_text("No folder can be made here.")
    with pytest.raises(
        StageError, match=r"(?s)MindFormers process ended with exit code 1.*weights"
    ):
        run(tmp_path, inputs)


def test_a_batch_may_have_more_problems_in_a_probe_than_in_a_round(
    inputs: dict[str, Path], tmp_path: Path
) -> None:
    """8 rows are 2 problems of a round, and parts of 3 problems of a probe."""
    probe = {"every": 1, "problems": 6, "n": 5}
    made = run(tmp_path, inputs, queries=2, n=4, batch=8, max_rounds=1, probe=probe)
    assert [one["n"] for one in made.probes] == [5, 5]


def test_export_takes_the_artifact(made: Run, tmp_path: Path) -> None:
    inputs = {"policy": made.inputs["policy"], "checkpoint": made.output}
    counts = export(ExportConfig(), inputs, tmp_path, StageContext("export", tmp_path / "q.jsonl"))
    parity = json.loads((tmp_path / "parity.json").read_text())
    # The folder that the next round would have been sampled with.
    hashes = {name: one["sha256"] for name, one in parity["tensors"].items()}
    last = json.loads((made.output / "rounds" / "00003" / "weights.json").read_text())
    assert fingerprint(hashes) == last["sha256"]
    before, after = (
        load_file(folder / "model.safetensors") for folder in (inputs["policy"], tmp_path)
    )
    assert counts.kept == len(before)
    assert [name for name in before if (before[name] == after[name]).all()] == []
    assert (tmp_path / "prompt.json").is_file() and (tmp_path / "tokenizer.json").is_file()


def test_solved_takes_the_artifact(made: Run, tmp_path: Path) -> None:
    inputs = {"problems": made.inputs["problems"], "rounds": made.output}
    config = SolvedConfig(kinds=["instruction"])
    counts = solved(config, inputs, tmp_path, StageContext("solved", tmp_path / "q.jsonl"))
    always = defaultdict(lambda: True)
    for visit in made.visits:
        if visit["kind"] == "instruction":
            always[visit["problem_id"]] &= visit["all_correct"] and not visit["overlong"]
    assert counts.read - counts.kept == sum(always.values())


@pytest.fixture(scope="module")
def control(tmp_path_factory: pytest.TempPathFactory, inputs: dict[str, Path]) -> Run:
    """With exchanged rewards, another temperature, and an end as soon as the rules allow it."""
    return run(
        tmp_path_factory.mktemp("control"),
        inputs,
        shuffle_rewards=True,
        temperature=0.5,
        off_policy="allowed",
        plateau={"window": 2, "min_gain": 1.0, "min_rounds": 2},
        keep_rows="last",
        max_rounds=9,
    )


def test_a_plateau_ends_the_stage(control: Run) -> None:
    assert [one["round"] for one in control.probes] == [0, 2]
    shares = np.array([one["correct"] for one in control.probes]) / 2
    # A line through two probes: its gain is their difference.
    gains = shares[1] - shares[0]
    assert control.plateau["gain"] == pytest.approx(gains.mean())
    assert control.plateau["se"] == pytest.approx(gains.std(ddof=1) / len(gains) ** 0.5)
    assert (control.plateau["stopped"], control.plateau["rounds"]) == ("plateau", 2)
    assert control.plateau["fit"]["rounds"] == [0, 2]
    assert len(control.rounds) == 2 and control.counts.read == 2 * QUERIES * N
    assert len(read_steps(control.output / "metrics.jsonl")) == 2


def test_exchanged_rewards_are_those_of_other_responses(control: Run) -> None:
    differ = 0
    for number in range(2):
        found = control.of_round(number)
        for first in range(0, len(found), N):
            group = found[first : first + N]
            own = advantages_by_hand(group)
            differ += [one["advantage"] for one in group] != pytest.approx(own, abs=1e-6)
        rewards = [one["reward"] for one in found]
        assert control.rounds[number]["mean_reward"] == pytest.approx(sum(rewards) / len(rewards))
    assert differ > 0


def test_other_temperatures_report_the_policys_log_probs(control: Run, made: Run) -> None:
    for one in control.rounds:
        if one["trained"]:
            assert one["mismatch_max"] < 1e-4
    first = [made.of_round(0), control.of_round(0)]
    assert [one["problem_id"] for one in first[0]] == [one["problem_id"] for one in first[1]]
    assert [one["token_ids"] for one in first[0]] != [one["token_ids"] for one in first[1]]


def test_only_the_last_rounds_rows_are_kept(control: Run) -> None:
    assert [folder.name for folder in sorted((control.output / "rounds").iterdir())] == ["00001"]
