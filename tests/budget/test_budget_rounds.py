"""A round of the stage rl: rows, hours of its phases and bytes, by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from pcl_reasoner.budget import disk_size, round_report
from pcl_reasoner.budget.response_counts import Counted, Responses
from pcl_reasoner.budget.round_size import RoundEstimate, estimate_round, round_data
from pcl_reasoner.cli.main import cli
from pcl_reasoner.core.errors import InputError
from pcl_reasoner.core.files import find, yaml_text
from pcl_reasoner.core.yaml_file import read_yaml
from pcl_reasoner.estimate.chips import read_chip
from pcl_reasoner.estimate.memory_estimate import ROUND_GRADIENTS, stage_memory
from pcl_reasoner.rounds.config import RlConfig
from pcl_reasoner.runner.plan import make_plan
from pcl_reasoner.runner.recipe import load_recipe

DIE = read_chip("ascend_910c_die", "bfloat16")
NUMBERS = 32_763_876_352
"""Parameters of Qwen2.5-32B."""
LAUNCH = "atlas_910c_rl"


def estimated(
    tmp_path: Path,
    launch: str = LAUNCH,
    *overrides: str,
    problems: int | None = 54_000,
    tokens: float | None = 10_000.0,
) -> RoundEstimate:
    plan = make_plan(load_recipe("am_thinking_v1", launch, overrides=overrides), tmp_path / "runs")
    [planned] = [one for one in plan.stages if one.spec.name == "rl_1"]
    return estimate_round(plan, planned, DIE, Responses(plan.recipe, problems, tokens))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> RoundEstimate:
    return estimated(tmp_path_factory.mktemp("rounds"))


def test_rows_and_micro_steps(found: RoundEstimate) -> None:
    """4 096 responses of 10 200 tokens with their prompts, in rows of 32 768, 16 per micro-step."""
    assert (found.size.segments, found.size.segment_tokens) == (4096, 10_200)
    assert found.size.rows == 1276  # 41 779 200 / (32 768 x 0.9999), rounded up
    assert found.size.steps == 80  # 79.75
    assert found.now.job.by_rounds and found.now.job.micro_batches == 8


def test_training_is_its_micro_steps_and_one_update(found: RoundEstimate) -> None:
    now = found.now
    assert found.phases["training"] * 3600 == pytest.approx(80 * now.seconds + found.update_seconds)
    # The first of four stages stores most: 17 layers' worth of matrices on 16 ranks, about 0.6e9.
    assert found.update_seconds == pytest.approx(28 * 0.59e9 / DIE.memory, rel=0.05)
    stage = stage_memory(now.job, 0)
    assert stage[ROUND_GRADIENTS] == stage["weights"]


def test_weights_are_written_merged_rounded_and_read(found: RoundEstimate) -> None:
    """Each number is sliced once, but embedding, norms and biases on both replicas."""
    assert found.folder_bytes == pytest.approx(2 * NUMBERS, rel=1e-3)
    assert found.slice_bytes == pytest.approx(4 * (NUMBERS + 152_064 * 5120), rel=1e-3)
    steps = found.hand_over()
    assert steps["ranks write slices"] == pytest.approx(found.slice_bytes / 8 / 4e9)
    both = found.slice_bytes + 2 * found.folder_bytes
    assert steps["merged"] == pytest.approx(both / 4e9 + 2 * found.folder_bytes / 2e9)
    assert steps["rounded"] == pytest.approx(found.slice_bytes / 0.6e9)
    assert steps["servers read"] == pytest.approx(found.folder_bytes / 4e9)
    exact = replace(found, config=found.config.model_copy(update={"weights_dtype": "float32"}))
    assert exact.hand_over()["rounded"] == 0
    assert found.phases["hand-over"] == pytest.approx(sum(steps.values()) / 3600)


def test_a_round_is_the_sum_of_its_phases_and_tests_run_beside_sampling(
    found: RoundEstimate,
) -> None:
    assert found.sampling is not None and found.sampling.cost is not None
    phases, cost = found.phases, found.sampling.cost
    assert found.sampling.workload.servers == 8  # the hosts that sample, not all 16
    assert phases["sampling"] == max(cost.hours, cost.longest_hours)
    # 200 held-out problems x 8 every five rounds, beside 4 096 responses per round.
    assert phases["probe"] == pytest.approx(cost.hours * 200 * 8 / 5 / 4096)
    alone = phases["probe"] + phases["training"] + phases["hand-over"]
    assert found.hours == pytest.approx(phases["sampling"] + alone)
    slow = replace(found, workers=1, tests=replace(found.tests, tests=5000))  # type: ignore[type-var]
    # 0.02 s and 5 000 x 0.002 s per program.
    assert slow.phases["tests"] == pytest.approx(4096 * 10.02 / 3600)
    assert slow.hours == pytest.approx(slow.phases["tests"] + alone)


def test_what_is_not_known_is_said(tmp_path: Path) -> None:
    found = estimated(tmp_path, problems=None, tokens=None)
    # A fifth of the longest response, 24 576 tokens.
    assert (found.tokens.number, found.problems) == (pytest.approx(4915.2), None)
    said = "\n".join(round_report.lines(found))
    assert "(mean 4,915 tokens: ASSUMED, 20% of the longest)" in said
    assert "problems: their number is not published" in said
    launch = read_yaml(find(LAUNCH, "launch"))
    launch["placement"]["sampling"]["devices"] = 1
    (tmp_path / "own.yaml").write_text(yaml_text(launch))
    small = estimated(tmp_path, str(tmp_path / "own.yaml"))
    assert small.hours is None and "sampling" not in small.phases
    said = "\n".join(round_report.lines(small))
    assert "sampling is not known: they cannot hold the weights and one response" in said


def test_lines_of_a_round(found: RoundEstimate) -> None:
    head, *lines = round_report.lines(found)
    assert head == (
        "a round of am_thinking_v1/rl_1: 256 problems x 16 = 4,096 responses of at most 24,576 "
        "tokens, at temperature 1; one update"
    )
    assert lines[0] == (
        "  rows: about 1,276 of 32,768 tokens in 80 micro-steps of 16, if every response has an "
        "advantage (mean 10,000 tokens: given)"
    )
    most = max(found.phases, key=lambda name: found.phases[name])
    assert f"{found.hours:.2f} in all, {most} takes most" in lines[1]
    waiting = 1 - found.phases["training"] / (found.hours or 0)
    assert lines[1].endswith(f"the hosts that train wait {waiting:.0%} of the time")
    assert lines[2] == f"  hours of 400 rounds: {400 * (found.hours or 0):,.0f}"
    # 54 000 / 256 = 210.9: the problems that are left over come into the next pass.
    given = "54,000 (given, filters before the stage not counted)"
    assert f"  problems: {given}: 210 rounds per pass" in lines
    # 10 probes, one every 5 rounds, are there at round 45; min_rounds is 20.
    plateau = "ends at a plateau (a gain below 0.01 over 10 probes, from round 45 on; a probe"
    assert [line for line in lines if plateau in line]
    short = found.config.model_copy(update={"max_rounds": 44})
    assert round_report.end_line(short).startswith("ends after 44 rounds: the plateau rule needs ")
    endless = found.config.model_copy(update={"plateau": None})
    assert round_report.end_line(endless) == "ends after 400 rounds"


def test_disk_of_rounds(found: RoundEstimate) -> None:
    sizes = dict(disk_size.rounds(found))
    weights = (
        "weights for samplers of am_thinking_v1/rl_1, 2 kept (keep_weights), one being written"
    )
    assert sizes[weights] == "197 GB, 66 GB each in bfloat16"  # 3 x 65.5
    checkpoint = 3 * found.slice_bytes / 1e9
    kept = "checkpoints of am_thinking_v1/rl_1, 2 of 80 kept (keep_checkpoints)"
    assert sizes[kept] == f"{2 * checkpoint:,.0f} GB, {checkpoint:,.0f} GB each"
    # 1 276 rows x 32 768 tokens x 16 bytes; 40.96 million tokens x 31 and x 8 bytes.
    rows = sizes["rows of am_thinking_v1/rl_1 (keep_rows: all)"]
    assert rows == "0.67 GB per round, 268 GB after 400 rounds"
    assert sizes["responses of am_thinking_v1/rl_1"] == (
        "1.27 GB while a round's are drawn, then 0.33 GB; 131 GB after 400 rounds"
    )


def test_a_mean_over_the_longest_response_is_refused() -> None:
    config = RlConfig(
        learning_rate=1e-6,
        max_new_tokens=100,
        max_model_len=200,
        row_tokens=200,
        plateau=None,
        rows=1,
    )
    with pytest.raises(InputError, match="--response-tokens 101: longer than the longest response"):
        round_data(config, Counted(101, "given"))


def test_the_command_plans_one_stage(tmp_path: Path) -> None:
    words = ["plan", "am_thinking_v1", "--launch", LAUNCH, "--runs", str(tmp_path)]
    done = CliRunner().invoke(cli, [*words, "--stage", "rl_1", "--problems", "54000"])
    assert done.exit_code == 0, done.output
    said = done.output
    assert "am_thinking_v1/rl_1: DP 2 x TP 8 x PP 4 = 64 devices" in said
    assert "8 hosts x 8 of the 16 devices of a node" in said
    assert "gradients of the round" in said and "seconds per micro-step" in said
    assert "am_thinking_v1/train" not in said.partition("asked of servers")[0]
    value = json.loads((tmp_path / "am_thinking_v1" / "plan" / "rl_1" / "plan.json").read_text())
    assert (value["round"]["responses"], value["round"]["micro_steps"]) == (4096, 40)
    assert value["sizes"] is None
    with pytest.raises(InputError, match="--stage rl_3: no stage of this name trains. Did you"):
        CliRunner().invoke(cli, [*words, "--stage", "rl_3"], catch_exceptions=False)


def test_stages_that_need_no_number_are_planned_although_another_does(tmp_path: Path) -> None:
    words = ["plan", "am_thinking_v1", "--launch", LAUNCH, "--runs", str(tmp_path)]
    done = CliRunner().invoke(cli, words)
    error = str(done.exception)
    assert "am_thinking_v1/train: not planned: the recipe publishes no number of res" in error
    assert "rl_" not in error
    for stage in ("rl_1", "rl_2"):
        assert f"a round of am_thinking_v1/{stage}: 256 problems" in done.output
        assert (tmp_path / "am_thinking_v1" / "plan" / stage / "plan.json").is_file()


def test_a_dry_run_has_every_hosts_part(tmp_path: Path) -> None:
    words = ["run", "am_thinking_v1", "--launch", LAUNCH, "--dry-run", "--runs", str(tmp_path)]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output
    said = done.output
    for stage, longest in (("rl_1", "24,576"), ("rl_2", "31,744")):
        assert f"a round of am_thinking_v1/{stage}: 256 problems x 16" in said
        assert f"responses of at most {longest} tokens" in said
        written = tmp_path / "am_thinking_v1" / "dry_run" / f"mindformers.{stage}.yaml"
        assert read_yaml(written)["runner_wrapper"]["type"] == "PclRoundStepCell"
    stage = said.partition("\nam_thinking_v1/rl_1\n")[2].partition("\nam_thinking_v1/")[0]
    by_host = {part.partition(":")[0]: part for part in stage.split("  on ")[1:]}
    for number in range(1, 17):
        part = by_host[f"node{number:02d}"]
        assert ("# ranks" in part) == (number <= 8)
        server = "# server of the policy; run --start ssh starts it\n"
        assert (server in part) == (number > 8)
    server = by_host["node16"].partition("# server")[2]
    assert "env VLLM_SERVER_DEV_MODE=1 /opt/vllm/bin/vllm serve" in server
    assert """--additional-config '{"rl_config": {"enabled": true}}'""" in server


def test_a_laptop_is_not_estimated(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["run", "am_thinking_v1", "--dry-run", "--runs", str(tmp_path)])
    [head] = [line for line in done.output.splitlines() if "a round of am_thinking_v1/rl_1" in line]
    assert head.endswith("at temperature 1; one update")
    assert "hours per round" not in done.output
