"""What a plan says of servers, sandboxes and disk: other models, kinds of problems, counts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from plan_trainings import SMALL

from pcl_reasoner.budget import sandbox_size
from pcl_reasoner.budget.disk_size import training
from pcl_reasoner.budget.response_counts import Responses, training_data
from pcl_reasoner.budget.served_model import hub_model, served_model
from pcl_reasoner.budget.serving_report import estimate_sampling
from pcl_reasoner.budget.serving_size import asked_of_servers
from pcl_reasoner.cli.main import cli
from pcl_reasoner.core.files import find, yaml_text
from pcl_reasoner.core.schema import Source
from pcl_reasoner.core.yaml_file import read_yaml
from pcl_reasoner.estimate import serving_estimate as estimate
from pcl_reasoner.estimate.chips import read_chip
from pcl_reasoner.estimate.data_size import DataSize
from pcl_reasoner.estimate.serving_estimate import Workload
from pcl_reasoner.formats.reading import FORMATS
from pcl_reasoner.grade.problem_kinds import FORMAT_KINDS, kinds_of, needs_of
from pcl_reasoner.runner.plan import Plan, PlannedStage, make_plan
from pcl_reasoner.runner.recipe import load_recipe
from pcl_reasoner.train.config import TrainConfig

GIB = 2**30
DIE = read_chip("ascend_910c_die", "bfloat16")
R1 = hub_model(Source(hub="deepseek-ai/DeepSeek-R1", revision="main", kind="model"))
TRUTH = Workload("a/sample", 1600, 1000.0, 200, 4000, servers=16, devices=8, under_way=64)

GRADED = """
name: graded
sources:
  rows: {path: ROWS}
  policy: {hub: a/policy, revision: main, kind: model}
  rewarded: {hub: Qwen/Qwen2.5-7B-Instruct, revision: main, kind: model}
stages:
  convert: {format: FORMAT, inputs: {source: rows}}
  unique: {measured: false, inputs: {rows: convert}}
  mix: {inputs: {problems: [unique]}}
  sample: {n: 4, concurrency: 10, max_model_len: 1000, inputs: {problems: mix}}
  grade: {method: judge, judge_concurrency: 7, inputs: {problems: mix, reward_model: rewarded}}
"""


def plan_of(tmp_path: Path, recipe: str, launch: str, *overrides: str) -> Plan:
    return make_plan(load_recipe(recipe, launch, overrides=overrides), tmp_path / "runs")


def graded(tmp_path: Path, form: str) -> Plan:
    (tmp_path / "rows").mkdir(exist_ok=True)
    (tmp_path / "rows" / "a.jsonl").write_text("{}\n")
    text = GRADED.replace("FORMAT", form).replace("ROWS", str(tmp_path / "rows"))
    (tmp_path / "graded.yaml").write_text(text)
    return plan_of(tmp_path, str(tmp_path / "graded.yaml"), "atlas_910c_16x8")


def stage(plan: Plan, name: str) -> PlannedStage:
    return next(one for one in plan.stages if one.spec.name == name)


def test_a_mixture_of_experts_by_hand() -> None:
    """671 GB in 16 dies are 41.9 GB each, of 61.8; a token keeps 61 x 576 numbers of 2 bytes."""
    assert R1 is not None and R1.has_experts
    # Four copies of four devices share the experts; each has the cache of a quarter of the tokens.
    server = replace(TRUTH, devices=4, copies=4)
    assert server.server_devices == 16
    assert estimate.token_bytes(R1, server) == 61 * 576 * 2 / 4
    room = 0.9 * 64 * GIB - 671e9 / 16
    assert estimate.fitting_responses(R1, DIE, server) == int(room // (700 * 61 * 576 * 2 / 4))
    # Alone it reads all weights: (671 - 0.93) GB by 16 dies of 1.12 TB/s.
    alone = estimate.token_seconds(R1, DIE, server, 0)
    assert alone == pytest.approx(670.07e9 / 16 / 1.12e12)
    found = estimate_sampling(R1, DIE, server)
    assert (found.workload.servers, found.problem) == (16, "")


def test_eight_dies_do_not_hold_it_and_a_plan_says_so(tmp_path: Path) -> None:
    found = estimate_sampling(R1, DIE, TRUTH)
    problem = "they have 512 GiB and vLLM takes 90% of it, and the weights take 625 GiB"
    assert found.cost is None and found.problem.endswith(problem)
    # Without a number of responses it is found, too.
    assert estimate_sampling(R1, DIE, replace(TRUTH, responses=0)).problem == found.problem
    words = ["plan", "am_thinking_v1", "--launch", "atlas_910c_16x8", "--problems", "1000"]
    said = CliRunner().invoke(cli, [*words, "--runs", str(tmp_path)], catch_exceptions=False).output
    assert f"sample_truth: a server of 8 devices is impossible: {found.problem}" in said


def test_copies_of_a_model_without_experts_are_servers() -> None:
    small = hub_model(Source(hub="Qwen/Qwen2.5-7B", revision="main", kind="model"))
    assert small is not None and not small.has_experts
    # Qwen's own number is 7 615 616 512: norms and biases of 28 layers are not counted here.
    assert 7_615_616_512 - small.stored == 28 * (2 * 3584 + 3584 + 2 * 512) + 3584
    found = estimate_sampling(small, DIE, replace(TRUTH, devices=4, copies=2))
    assert (found.workload.servers, found.workload.server_devices) == (32, 4)


def test_every_format_has_its_kinds() -> None:
    assert set(FORMAT_KINDS) == set(FORMATS)


@pytest.mark.parametrize(
    ("form", "asked"),
    [
        ("nemotron", ["judging"]),
        ("chat", ["scoring"]),
        ("ifeval", []),
        ("am_rl", ["judging"]),
    ],
)
def test_a_grader_is_asked_only_for_kinds_that_occur(
    tmp_path: Path, form: str, asked: list[str]
) -> None:
    plan = graded(tmp_path, form)
    grade = stage(plan, "grade")
    assert [one.kind for one in needs_of(plan, grade)] == asked
    assert kinds_of(plan, grade) == set(FORMAT_KINDS[form])


def test_what_is_read_and_what_is_drawn_is_counted_from_the_problems(tmp_path: Path) -> None:
    plan = graded(tmp_path, "chat")
    found = asked_of_servers(plan, Responses(plan.recipe, problems=50))
    sample, scored = [one.workload for one in found]
    assert (sample.stage, sample.responses, sample.tokens) == ("graded/sample", 200, 200.0)
    assert (sample.under_way, sample.longest) == (40, 800)
    # A reward model reads the answers of all 200, and draws nothing.
    assert scored.stage == "graded/grade: the reward model"
    assert (scored.responses, scored.tokens, scored.prompt_tokens) == (200, 0, 700)
    assert scored.notes[0] == "responses: at most those of sample"
    small = hub_model(Source(hub="Qwen/Qwen2.5-7B-Instruct", revision="main", kind="model"))
    cost = estimate_sampling(small, DIE, replace(scored, devices=4)).cost
    assert cost is not None and cost.decode_hours == 0
    assert cost.hours == cost.prefill_hours > 0
    # Without a number of problems the work is unknown, and said to be.
    unknown = [one.workload for one in asked_of_servers(plan, Responses(plan.recipe))]
    assert [one.responses for one in unknown] == [0, 0]
    assert unknown[0].notes[0].endswith("give the number of problems with --problems")


def test_segments_are_the_responses_to_the_problems(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "am_thinking_v1", "atlas_910c_16x8")
    responses = Responses(plan.recipe, problems=1000, tokens=800.0)
    found = training_data(stage(plan, "train"), responses)
    # One response per problem is trained on, eight are drawn for the vote; 200 tokens of prompt.
    assert (found.segments, found.segment_tokens) == (1000, 1000.0)
    assert found.notes[0] == "segments: at most those of sample_sft; filters drop some"
    assert training_data(stage(plan, "train"), responses, 70, 300.0).segments == 70


def test_perplexity_reads_what_was_drawn(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "am_thinking_v1", "atlas_910c_16x8")
    found = {
        one.planned.spec.name: one.workload
        for one in asked_of_servers(plan, Responses(plan.recipe, 1000, 800.0))
    }
    evaluations = ["evaluate_sft", "evaluate_1", "evaluate_2"]
    drawing = ["sample_truth", "sample_sft", "perplexity", "sample_rates"]
    assert list(found) == [*drawing, "rl_1", "rl_2", *evaluations]
    numbers = [(one.responses, one.tokens, one.prompt_tokens) for one in found.values()]
    questions = 30 + 30 + 1055
    assert numbers == [
        (8000, 800, 200),
        (1000, 800, 200),
        (1000, 0, 1000),
        (8000, 800, 200),
        (4096, 800, 200),  # a round: 256 problems x 16, however many problems there are
        (4096, 0, 700),  # what the reward model reads of it; the policy's servers as for rl_1
        *[(questions * 32, 800, 200)] * 3,
    ]
    assert found["rl_1"].stage == "am_thinking_v1/rl_1, a round"
    assert found["rl_2"].stage == "am_thinking_v1/rl_2, a round: the reward model"


def test_programs_where_they_run_and_how_long(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "am_thinking_v1", "atlas_910c_16x8")
    found = sandbox_size.tested(plan, Responses(plan.recipe, 1000))
    assert [(one.stage, one.programs, one.tests) for one in found] == [
        ("am_thinking_v1/check_tests", 1000, 10),
        ("am_thinking_v1/grade_rates", 8000, 10),
        ("am_thinking_v1/rl_1", 4096, 10),
        ("am_thinking_v1/rl_2", 4096, 10),
        ("am_thinking_v1/evaluate_sft", 1055 * 32, None),
        ("am_thinking_v1/evaluate_1", 1055 * 32, None),
        ("am_thinking_v1/evaluate_2", 1055 * 32, None),
    ]
    placement = plan.recipe.launch.placement
    sandbox = {"workers": 10}
    ten = placement.model_validate({**placement.model_dump(), "sandbox": sandbox})
    first, *lines = sandbox_size.lines(found, ten)
    assert "on the machine of pclr-ms run, not on the launch file's hosts; 10 at a time" in first
    # 33 760 x 0.04 s / 10 and 33 760 x 6 s / 10.
    assert lines[4].endswith(
        "from 0.0 h (ASSUMED: 10 small tests each) to 5.6 h (every program ends at a test that "
        "reaches its limit of 6 s)"
    )
    services = {"engine": "http", "urls": ["http://a:8080", "http://b:8080"]}
    http = placement.model_validate({**placement.model_dump(), "sandbox": services})
    assert (
        "by the services http://a:8080, http://b:8080; 64 at a time"
        in sandbox_size.lines(found, http)[0]
    )
    assert sandbox_size.lines([], http) == []


def test_a_benchmarks_own_file_says_whether_it_has_tests(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"question_content": "Add.", "id": 1}) + "\n")
    (tmp_path / "b.jsonl").write_text(json.dumps({"problem": "1 + 1?", "answer": "2"}) + "\n")
    names = {"aime24": "a.jsonl", "aime25": "b.jsonl"}
    given = [f"sources.{name}.path={tmp_path / file}" for name, file in names.items()]
    recipe = plan_of(tmp_path, "v15_opg", "atlas_910c_16x8", *given).recipe
    assert [sandbox_size.has_tests(recipe, name) for name in names] == [True, False]


def test_disk_by_hand(tmp_path: Path) -> None:
    """Two stages of TP 2 on DP 2 without sharding: every rank writes all that it holds."""
    from plan_trainings import SMALL

    from pcl_reasoner.estimate.memory_estimate import parameters_held

    job = replace(SMALL, optimizer_shard=False)
    size = DataSize(90, 100.0, 100, 100, 100, 4, 1, 250, ())
    plan = plan_of(tmp_path, "v1_sft", "v1_dp8_tp8_pp2")
    config = stage(plan, "train").spec.config
    assert isinstance(config, TrainConfig)
    million = replace(size, segments=90_000_000, rows=100_000_000)
    found = list(training("a/train", config, job, million))
    (_, rows), (checkpoints, bytes_), _, (_, logs), (_, hashed) = found
    # 250 steps of 8 ranks, 1 000 bytes each.
    assert logs.startswith("0.0 GB") and 250 * 8 * 1000 < 0.05e9
    # 9e9 tokens of 8 bytes, 1e10 places of 12 bytes.
    assert rows == "72 GB tokenized, 120 GB packed"
    # 192e9 bytes at 2e9 a second are 96 s.
    assert hashed == "192 GB: 0.03 h on one core, less on more if the disk is as fast"
    # 250 steps, one checkpoint each 100: after 100, 200 and at the end.
    assert checkpoints == "checkpoints of a/train, 3 of 3 kept (keep_checkpoints)"
    assert bytes_ == "0 GB, 0 GB each"
    large = replace(job, hidden=64_000, feed_forward=128_000)
    held = sum(parameters_held(large, one) for one in range(2)) * 4
    *_, (_, bytes_), (_, model), (_, logs), _ = training(
        "a/train", config, large, replace(size, steps=1_000_000)
    )
    assert logs.startswith(f"{1_000_000 * 8 * 1000 / 1e9:.1f} GB")  # 8.0
    assert bytes_ == f"{10 * held * 12 / 1e9:,.0f} GB, {held * 12 / 1e9:,.0f} GB each"
    # Both data-parallel ranks hold the same: the merged model is half of that, 4 bytes a number.
    assert model == f"{held * 4 / 1e9:,.0f} GB, {held * 2 / 1e9:,.0f} GB each"


def test_a_teacher_of_one_node_is_planned_on_its_16_devices(tmp_path: Path) -> None:
    """The shape of weights that are here is read from their config.json."""
    weights = tmp_path / "r1"
    weights.mkdir()
    (weights / "config.json").write_text(json.dumps({"model_type": "deepseek_v3"}))
    launch = read_yaml(find("atlas_910c_teacher", "launch"))
    (tmp_path / "own.yaml").write_text(yaml_text(launch))
    words = ["plan", "am_thinking_v1", "--launch", str(tmp_path / "own.yaml"), "--problems", "1000"]
    words += ["--stage", "train"]
    words += [f"sources.teacher.path={weights}", "--runs", str(tmp_path / "runs")]
    said = CliRunner().invoke(cli, words, catch_exceptions=False).output
    [row] = [line for line in said.splitlines() if line.startswith("am_thinking_v1/sample_sft ")]
    assert "16 x 16" in row and "impossible" not in row
    assert "sample_sft: servers: 1 on each of 16 hosts, as run --start ssh starts them" in said
    value = json.loads(
        (tmp_path / "runs" / "am_thinking_v1" / "plan" / "train" / "plan.json").read_text()
    )
    stages = ["check_tests", "grade_rates", "rl_1", "rl_2"]
    stages += ["evaluate_sft", "evaluate_1", "evaluate_2"]
    assert [one["stage"] for one in value["sandboxes"]] == [f"am_thinking_v1/{s}" for s in stages]
    assert "fetched: teacher (deepseek-ai/DeepSeek-R1 at main)" not in value["disk"]
    assert value["disk"]["fetched: scorer (Qwen/Qwen2.5-32B-Instruct at main)"] == "66 GB"


def test_a_judge_without_weights_in_the_recipe_is_known_by_its_name(tmp_path: Path) -> None:
    """Qwen3-32B has 64 heads of 128, wider than 5 120 / 64 = 80."""
    plan = plan_of(tmp_path, "v15_opg", "atlas_910c_16x8")
    grade = stage(plan, "grade")
    model = served_model(grade, "judge", SMALL, grade.inputs["problems"])
    assert model is not None and model.title == "Qwen/Qwen3-32B"
    # Per layer 2 x 5120 x 8192 + 2 x 5120 x 1024 + 3 x 5120 x 25600 = 487 587 840 weights; two
    # embeddings of 151 936 x 5120. Qwen's own number, 32.8 B, also has norms.
    assert model.stored == 64 * 487_587_840 + 2 * 151_936 * 5120
    assert (model.width, model.cached) == (8192, 2 * 1024)
    # The reward model is another one.
    assert served_model(grade, "reward_model", SMALL, grade.inputs["problems"]) is None
    other = stage(plan_of(tmp_path, "v15_opg", "atlas_910c_16x8", "grade.judge_model=x"), "grade")
    assert served_model(other, "judge", SMALL, grade.inputs["problems"]) is None


def test_sixteen_hosts_with_two_servers_each(tmp_path: Path) -> None:
    """32 servers of 8 dies; 101 responses at once each, as many as fit.

    A token: 8 GB of weights and 101 x 16 200 tokens of 32 768 bytes at 1.12e12 bytes per second.
    """
    launch = read_yaml(find("atlas_910c_teacher", "launch"))
    launch["placement"]["sampling"] = {"executable": "vllm", "servers": 2, "devices": 8}
    (tmp_path / "two.yaml").write_text(yaml_text(launch))
    plan = plan_of(tmp_path, "v15_opg", str(tmp_path / "two.yaml"), "sample.concurrency=1024")
    sample = asked_of_servers(plan, Responses(plan.recipe))[0].workload
    assert (sample.servers, sample.server_devices, sample.possible) == (32, 8, 32)
    model = hub_model(Source(hub="Qwen/Qwen2.5-32B", revision="main", kind="model"))
    found = estimate_sampling(model, DIE, sample)
    weights = 2 * (64 * 487_587_840 + 778_567_680) / 8
    second = (weights + 101 * 16_200 * 32_768) / 1.12e12
    hours = 48_512 / (32 * 101) * 32_000 * second / 3600
    assert found.cost is not None and found.cost.at_once == 101
    assert found.cost.decode_hours == pytest.approx(hours)
    assert f"{found.cost.hours:.1f}" == "7.3" and found.on_all_devices is None


def test_idle_devices_of_a_node_are_named(tmp_path: Path) -> None:
    """The 7B model's server takes 4 of 8 devices; two servers, as shipped, take half the hours."""
    launch = read_yaml(find("one_node_7b", "launch"))
    launch["placement"]["sampling"]["servers"] = 1
    (tmp_path / "one.yaml").write_text(yaml_text(launch))
    words = ["plan", "v1_sft", "--runs", str(tmp_path), "--launch"]
    shipped = CliRunner().invoke(cli, [*words, "one_node_7b"], catch_exceptions=False).output
    assert "devices are idle" not in shipped
    one = str(tmp_path / "one.yaml")
    said = CliRunner().invoke(cli, [*words, one], catch_exceptions=False).output
    [line] = [line for line in said.splitlines() if "devices are idle" in line]
    assert line.strip().startswith(
        "v1_sft/evaluate: 4 of the hosts' devices are idle: 2 servers of 4 devices"
    )
    assert line.endswith("take 1.1 h in place of 2.2 h")
    # Servers at URLs run on other machines: their devices are not known here.
    del launch["placement"]["sampling"]
    launch["placement"]["server_urls"] = ["http://a:1/v1"]
    (tmp_path / "own.yaml").write_text(yaml_text(launch))
    plan = plan_of(tmp_path, "v1_sft", str(tmp_path / "own.yaml"))
    assert [one.workload.possible for one in asked_of_servers(plan, Responses(plan.recipe))] == [0]
