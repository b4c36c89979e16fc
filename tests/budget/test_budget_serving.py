"""What sampling and evaluation cost: seconds by hand, counts from the recipe's own numbers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from plan_trainings import SMALL

from pcl_reasoner.budget import uncertain
from pcl_reasoner.budget.response_counts import Responses
from pcl_reasoner.budget.serving_report import estimate_sampling
from pcl_reasoner.budget.serving_size import asked_of_servers
from pcl_reasoner.cli.main import cli
from pcl_reasoner.core.errors import InputError
from pcl_reasoner.core.files import find, yaml_text
from pcl_reasoner.core.yaml_file import read_yaml
from pcl_reasoner.estimate import serving_estimate as estimate
from pcl_reasoner.estimate.chips import Chip
from pcl_reasoner.estimate.served_shape import trained_model
from pcl_reasoner.estimate.serving_estimate import Workload
from pcl_reasoner.precompile.cann import read_dry_run
from pcl_reasoner.runner.plan import make_plan
from pcl_reasoner.runner.recipe import load_recipe

CHIP = Chip("round", "", 2e9, 1e9, 5e8, 4_000_000, 1e8, 1e6, 1e5, 1e7, 4, "", {"matrix": 0.5})
"""1e9 operations of products a second, 5e8 of attention, 1e8 bytes of memory a second, 4 MB."""
LAYER = 64 * 64 * 2 + 64 * 32 * 2 + 128 * 64 * 3
WEIGHTS = 4 * LAYER + 512 * 64
"""Of four layers, and the output's."""
MODEL = trained_model(SMALL)
DRAWN = Workload(
    stage="r/sample",
    responses=600,
    tokens=100,
    prompt_tokens=50,
    longest=400,
    servers=3,
    devices=2,
    under_way=60,
)

# Source: the sample in MindSpore's tutorial "DryRun",
# https://www.mindspore.cn/tutorials/en/r2.7.0/_sources/debug/dryrun.md.txt
DRY_RUN = """Device MOC memory size: 65536M
MindSpore Used memory size: 59392M
MindSpore memory base address: 0xffffe9dc1407
Used peak memory usage (without fragments): 23716M
Actual peak memory usage (with fragments): 26244M
"""


def on(devices: int, **changes: int) -> Workload:
    return replace(DRAWN, devices=devices, **changes)


def test_bytes_of_weights_keys_and_values() -> None:
    assert (MODEL.read, MODEL.active, MODEL.stored) == (WEIGHTS, WEIGHTS, WEIGHTS + 512 * 64)
    assert estimate.weight_bytes(MODEL, on(2)) == WEIGHTS
    # Two key-value heads of 16: 2 x 4 layers x 32 numbers x 2 bytes, over two devices.
    assert estimate.token_bytes(MODEL, on(1)) == 512
    assert estimate.token_bytes(MODEL, on(2)) == 256
    # There is no third part of two heads: four devices hold each of them twice.
    assert estimate.token_bytes(MODEL, on(4)) == 256
    # Of two pipeline stages each has half the layers.
    assert estimate.token_bytes(MODEL, on(4, stages=2)) == 128
    assert estimate.weight_bytes(MODEL, on(2, stages=2)) == WEIGHTS / 2


def test_how_many_responses_fit() -> None:
    """3.6 MB of 4, less half the weights and half the embedding; 100 tokens of 256 bytes each."""
    room = 3_600_000 - WEIGHTS - 512 * 64
    assert estimate.fitting_responses(MODEL, CHIP, DRAWN) == int(room // (100 * 256)) == 132


def test_a_token_takes_as_long_as_what_it_reads_or_as_its_products() -> None:
    reading = (WEIGHTS + 20 * 100 * 256) / 1e8
    assert estimate.token_seconds(MODEL, CHIP, DRAWN, 20) == pytest.approx(reading)
    fast = replace(CHIP, memory=1e12)
    products = 2 * WEIGHTS * 20 / 2 / 1e9 + 4 * 4 * 64 * 100 * 20 / 2 / 5e8
    assert estimate.token_seconds(MODEL, fast, DRAWN, 20) == pytest.approx(products)


def test_hours_by_hand() -> None:
    """600 responses, 20 on each of three servers at once: ten rounds of 100 tokens."""
    found = estimate.cost(MODEL, CHIP, DRAWN)
    assert (found.at_once, found.fitting) == (20, 132)
    second = (WEIGHTS + 20 * 100 * 256) / 1e8
    assert found.decode_hours == pytest.approx(10 * 100 * second / 3600)
    prompt = 2 * WEIGHTS * 50 / 1e9 + 2 * 4 * 64 * 50 * 50 / 5e8
    assert found.prefill_hours == pytest.approx(600 * prompt / 6 / 3600)
    assert found.hours == found.decode_hours + found.prefill_hours
    assert found.device_hours == pytest.approx(6 * found.hours)
    # Alone, with half of 400 tokens behind it on average, and the prompt.
    alone = (WEIGHTS + 250 * 256) / 1e8
    assert found.longest_hours == pytest.approx(400 * alone / 3600)


@pytest.mark.parametrize(
    ("changes", "at_once"),
    [
        ({"under_way": 10_000}, 132),  # what fits
        ({"responses": 30}, 10),  # there are no more
        ({"under_way": 1}, 1),
        ({"under_way": 10_000, "tokens": 1.0, "prompt_tokens": 1.0, "responses": 5000}, 256),
    ],
)
def test_what_limits_the_responses_at_once(changes: dict[str, float], at_once: int) -> None:
    found = estimate.cost(MODEL, CHIP, replace(DRAWN, **changes))  # type: ignore[arg-type]
    assert found.at_once == at_once


def test_more_at_once_is_named_where_it_helps() -> None:
    small = replace(CHIP, memory_bytes=100_000)
    few = estimate_sampling(MODEL, CHIP, DRAWN)
    assert few.with_more_at_once is not None and few.cost is not None
    assert few.with_more_at_once.at_once == 132 and few.with_more_at_once.hours < few.cost.hours
    full = estimate_sampling(MODEL, CHIP, replace(DRAWN, under_way=600))
    assert full.cost is not None and full.cost.at_once == 132 and full.with_more_at_once is None
    no = estimate_sampling(MODEL, small, DRAWN)
    assert no.cost is None and no.with_more_at_once is None
    # Two devices of 100 000 bytes are nothing in GiB, and so are the weights.
    assert no.problem.startswith("they cannot hold the weights and one response: they have 0 GiB")
    assert few.problem == ""


def test_heads_that_a_servers_devices_cannot_share(tmp_path: Path) -> None:
    """Four heads go over two devices and not over three; the 7B model's 28 go over its four."""
    no = estimate_sampling(MODEL, CHIP, replace(DRAWN, devices=3))
    assert no.cost is None and no.problem == "4 heads cannot be shared by 3 devices"
    words = ["plan", "v1_sft", "--launch", "one_node_7b"]
    answer = CliRunner().invoke(cli, [*words, "--runs", str(tmp_path)], catch_exceptions=False)
    assert "impossible" not in answer.output


def workloads(
    runs: Path, *recipe: str, tokens: float | None = None, overrides: tuple[str, ...] = ()
) -> list[Workload]:
    """What `pclr-ms plan` finds that is asked of servers."""
    plan = make_plan(load_recipe(*recipe, overrides=overrides), runs)
    return [one.workload for one in asked_of_servers(plan, Responses(plan.recipe, None, tokens))]


def test_v15s_own_numbers(tmp_path: Path) -> None:
    """48 512 published; V1 answers with (22 535 + 25 993) / 2 tokens; 64 requests of 8 or 32.

    The problems that are sampled are those to which another model gave 32 000 tokens or more.
    """
    found = {one.stage: one for one in workloads(tmp_path, "v15_opg", "atlas_910c_16x8")}
    names = ("sample", "grade: the judge", "evaluate_before", "evaluate_after")
    assert list(found) == [f"v15_opg/{name}" for name in names]
    sample, judge, before, after = found.values()
    # The judge reads 300 tokens and a prompt of 200, and replies with a fifth of 8 192.
    assert (judge.responses, judge.prompt_tokens, judge.under_way) == (48_512, 500, 64)
    assert judge.tokens == pytest.approx(1638.4)
    assert (sample.responses, sample.tokens, sample.under_way) == (48_512, 32_000, 64 * 8)
    assert sample.notes[1] == (
        "tokens per response: ASSUMED, the least mean that lengths keeps, of another model"
    )
    shorter = ("lengths.min_mean_tokens=20000",)
    sample = workloads(tmp_path, "v15_opg", "atlas_910c_16x8", overrides=shorter)[0]
    assert sample.tokens == 24_264 and "ASSUMED as in evaluate_before" in sample.notes[1]
    cut = ("sample.max_new_tokens=30000",)
    assert workloads(tmp_path, "v15_opg", "atlas_910c_16x8", overrides=cut)[0].tokens == 30_000
    assert (before.responses, before.tokens) == (2 * 30 * 32, 24_264)
    assert (after.tokens, after.longest) == ((30_560 + 39_835) / 2, 129_024)
    assert (sample.servers, sample.devices) == (16, 8)
    assert "aime24, aime25: no file here" in before.notes[0]


def test_questions_that_are_here_are_counted(tmp_path: Path) -> None:
    (tmp_path / "exam.jsonl").write_text('{"a": 1}\n\n{"a": 2}\n')
    paths = tuple(f"sources.{name}.path={tmp_path}/exam.jsonl" for name in ("aime24", "aime25"))
    v1 = ("v1_sft", "v1_dp8_tp8_pp2")
    [found] = workloads(tmp_path, *v1, overrides=paths)
    assert found.responses == 4 * 32 and found.notes[0] == "responses: 4 questions x 32"
    [given] = workloads(tmp_path, *v1, tokens=500)
    assert given.tokens == 500 and given.notes[1].endswith("given")


@pytest.mark.parametrize(
    ("placement", "expected"),
    [
        ({"server_urls": ["http://a:1/v1", "http://b:1/v1"], "server_devices": 4}, (2, 4)),
        # On every host, as --start ssh starts them.
        ({"sampling": {"executable": "vllm", "servers": 2, "devices": 4}}, (32, 4)),
        ({"sampling": {"executable": "vllm"}, "server_devices": 8}, (16, 8)),
        ({"server_devices": 8}, (16, 8)),
    ],
)
def test_servers_are_those_of_the_launch_file(
    tmp_path: Path, placement: dict[str, object], expected: tuple[int, int]
) -> None:
    launch = read_yaml(find("v1_dp8_tp8_pp2", "launch"))
    launch["placement"] |= {"sampling": None} | placement
    (tmp_path / "own.yaml").write_text(yaml_text(launch))
    [found] = workloads(tmp_path, "v1_sft", str(tmp_path / "own.yaml"))
    assert (found.servers, found.devices) == expected


def test_a_laptop_asks_no_server(tmp_path: Path) -> None:
    assert workloads(tmp_path, "v15_opg", "laptop") == []


def plan(*words: str, runs: Path) -> str:
    words = ("plan", "v15_opg", "--launch", "atlas_910c_16x8", *words, "--runs", str(runs))
    answer = CliRunner().invoke(cli, list(words), catch_exceptions=False)
    assert answer.exit_code == 0
    return answer.output


def test_the_command_on_v15(tmp_path: Path) -> None:
    """32 at once: 8 GB of weights and 32 times 16 200 tokens of 32 KiB, 1.12e12 bytes a second."""
    (tmp_path / "log").write_text(f"[INFO] one\n{DRY_RUN}")
    said = plan("--dry-run-log", str(tmp_path / "log"), runs=tmp_path)
    weights = 2 * (64 * 487_587_840 + 778_567_680) / 8
    second = (weights + 32 * 16_200 * 32_768) / 1.12e12
    hours = 48_512 / (16 * 32) * 32_000 * second / 3600
    assert f"{second * 1000:.1f}" == "22.3"
    # The policy's own config.json is not here; its shape is that of the training.
    [row] = [line for line in said.splitlines() if line.startswith("v15_opg/sample ")]
    assert "PCL-Reasoner/V1" in row
    # 0.9 x 64 GiB less the weights, 1.64 million tokens of 32 KiB: 101 responses of 16 200.
    assert "32 of 101" in row and "22.3" in row and f"{hours:.1f}" in row
    assert "MindSpore's dry run: a peak of 25.6 GiB with fragments" in said
    value = json.loads((tmp_path / "v15_opg" / "plan" / "train" / "plan.json").read_text())
    first = value["sampling"][0]
    assert first["cost"]["decode_hours"] == pytest.approx(hours)
    assert first["cost"]["device_hours"] == pytest.approx(128 * first["cost"]["hours"])
    assert first["with_more_at_once"]["at_once"] == 101
    assert value["dry_run_bytes"]["peak"] == 26_244 << 20


def test_a_dry_runs_memory_is_read_from_its_log(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(DRY_RUN)
    assert read_dry_run(tmp_path / "log") == {
        "peak": 26_244 << 20,
        "peak_without_fragments": 23_716 << 20,
        "usable": 59_392 << 20,
    }
    (tmp_path / "other").write_text("Device MOC memory size: 65536M\n")
    with pytest.raises(InputError, match="other: no line 'Actual peak memory usage"):
        read_dry_run(tmp_path / "other")


def test_the_command_prints_waits_and_days_of_v15(tmp_path: Path) -> None:
    """Eleven saves; sampling, judging and training one after another; ten checkpoints are kept.

    A host of stage 1 writes 8 x 341 293 056 x 12 bytes = 32.8 GB, 8.2 s at 4 GB/s; a rank copies
    4.1 GB at 17.5 GB/s in 0.2 s and seals it at 1 GB/s in 4.1 s: 12.5 s.
    """
    said = plan(runs=tmp_path)
    [save] = [line.split() for line in said.splitlines() if line.startswith("a save ")]
    slices = 12 * 341_293_056
    seconds = slices / (0.7 * 25e9) + 8 * slices / 4e9 + slices / 1e9
    assert save[2:4] == [f"{seconds:.1f}", "11"] == ["12.5", "11"]
    assert "saves do not overlap with training (async_save: false)" in said
    assert "8 of each node are IDLE in training" in said
    value = json.loads((tmp_path / "v15_opg" / "plan" / "train" / "plan.json").read_text())
    stages = {one["stage"]: one for one in value["stages"]}
    train, hours = stages["v15_opg/train"], value["now"]["hours"]
    waited = value["waiting_seconds"]
    once = sum(waited["start"].values()) + 11 * sum(waited["save"].values())
    assert train["hours"] == pytest.approx(hours + once / 3600)
    before = stages["v15_opg/sample"]["hours"] + stages["v15_opg/grade"]["hours"]
    assert train["start_hours"] == pytest.approx(before)
    # 27 174 segments of 20 480 tokens, 8 bytes each; as many rows of 51 200, 12 bytes each.
    rows = 27_174 * (20_480 * 8 + 51_200 * 12)
    # The 129 norms of 5 120 are counted once per tensor-parallel rank, 18 MB too much.
    merged = 4 * (32_763_876_352 + 7 * 129 * 5_120)
    grown = train["bytes_at_most"] - train["bytes_after"]
    # At its end it still has ten checkpoints, and the merged one.
    assert grown == pytest.approx(10 * sum(STORED) * 12)
    left = stages["v15_opg/grade"]["bytes_after"]
    assert train["bytes_after"] == pytest.approx(left + rows + merged)
    assert [day["first"] for day in value["days"]] == [1, 2, 3]
    assert value["days"][-1]["most"] == pytest.approx(train["bytes_at_most"])


STORED = [32 * count for count in (341_293_056, 243_972_096, 243_972_096, 268_307_456)]
"""Numbers of V1.5's four stages, each on 32 ranks, as the front-end compile found them."""


def test_the_largest_uncertainty_of_sampling_by_hand() -> None:
    """Memory at 35 to 90 % of its rate in place of 70 %; half to three halves of the tokens.

    Decoding is reading here, so its hours are in proportion to the rate; 100 tokens of 50 + 50
    context become 50 of 75 and 150 of 125.
    """
    chip = replace(CHIP, assumed={"matrix": 0.5, "memory": 0.7})
    found = estimate_sampling(MODEL, chip, DRAWN)
    assert found.cost is not None
    by_rate, by_end = uncertain.served_spreads(found, chip)
    slow, fast = (estimate.cost(MODEL, replace(chip, memory=1e8 * share), DRAWN).hours
                  for share in (0.35 / 0.7, 0.9 / 0.7))  # fmt: skip
    assert (by_rate.high, by_rate.low) == (pytest.approx(slow), pytest.approx(fast))
    assert slow == pytest.approx(2 * found.cost.decode_hours + found.cost.prefill_hours)
    assert by_end.high == found.cost.hours + found.cost.longest_hours
    noted = replace(found, workload=replace(DRAWN, notes=("tokens per response: ASSUMED",)))
    *_, by_length = uncertain.served_spreads(noted, chip)
    second = (WEIGHTS + 20 * 125 * 256) / 1e8
    assert by_length.high == pytest.approx(10 * 150 * second / 3600 + found.cost.prefill_hours)
    # A stage that only reads has no decoding: products count.
    reading = estimate_sampling(MODEL, chip, replace(DRAWN, tokens=0.0))
    [by_products] = uncertain.served_spreads(reading, chip)
    assert "matrix products" in by_products.cause


def test_the_starts_of_v15s_servers(tmp_path: Path) -> None:
    """Five starts: 32.8e9 weights of two bytes, and of four in an export, at 4 GB/s per host.

    A judge of the hub has 32.8e9 weights, too. A proof also compiles for 240 s and reads 131 GB.
    """
    words = ["plan", "v15_opg", "--launch", "atlas_910c_16x16", "--runs", str(tmp_path)]
    said = CliRunner().invoke(cli, words, catch_exceptions=False).output
    rows = {
        line.split()[2]: [word for word in line.split() if word != "GB"][-4:]
        for line in said.splitlines()
        if line.startswith("servers of ")
    }
    assert rows == {
        "v15_opg/sample": ["66", "2", "33", "0.01"],
        "v15_opg/grade:": ["66", "2", "33", "0.01"],
        "v15_opg/evaluate_before": ["66", "2", "33", "0.01"],
        "v15_opg/prove": ["131", "2", "338", "0.09"],
        "v15_opg/evaluate_after": ["131", "2", "66", "0.02"],
    }
    assert "an exported folder is float32" in said
    assert "64 GB/s of the shared folder for 16 hosts" in said
    value = json.loads((tmp_path / "v15_opg" / "plan" / "train" / "plan.json").read_text())
    stages = {one["stage"].partition("/")[2]: one["hours"] for one in value["stages"]}
    served = {one["stage"]: one["cost"]["hours"] for one in value["sampling"] if one["cost"]}
    assert stages["sample"] - served["v15_opg/sample"] == pytest.approx(
        2 * 2 * 32_762_757_120 / 4e9 / 3600
    )
    assert stages["prove"] == pytest.approx((3 * 4 * 32_762_757_120 / 4e9 + 240) / 3600)
