"""Values in another unit, or out of the range in which a training learns."""

from __future__ import annotations

from pathlib import Path

import pytest
from preflight_helpers import own_launch, own_recipe, verdict

from pcl_reasoner.preflight.values import _OF_DUCKDB, _OF_MINDSPORE


@pytest.mark.parametrize(
    ("override", "said"),
    [
        (
            "train.max_device_memory=58GiB",
            "train.max_device_memory (override train.max_device_memory=58GiB) must have the unit "
            "GB directly after the number, as MindSpore reads it, e.g. 58GB, got '58GiB'.",
        ),
        (
            "train.learning_rate=1",
            "train.learning_rate (override train.learning_rate=1) must be less than 1, e.g. "
            "1.0e-6, got 1.",
        ),
        (
            "train.learning_rate_end=1.0e-3",
            "train.learning_rate_end (override train.learning_rate_end=1.0e-3) is 0.001, and "
            "train.learning_rate, the highest rate, is 6e-05. Lower train.learning_rate_end.",
        ),
        (
            "train.betas=[9,95]",
            "train.betas (override train.betas=[9,95]) must be two numbers from 0 to less than 1, "
            "e.g. [0.9, 0.95], got [9.0, 95.0].",
        ),
    ],
)
def test_an_override(override: str, said: str) -> None:
    found = verdict("v1_sft", "atlas_910c_16x8", override)
    assert found.errors == [f"stage v1_sft/train: {said}"]


@pytest.mark.parametrize(
    ("override", "said"),
    [
        # 131 072 tokens x 0.02 s = 2 621.44 s, x 0.2 s = 26 214.4 s.
        (
            "sample.request_timeout=2621",
            "sample: sample.request_timeout (override sample.request_timeout=2621) is 2621 "
            "seconds, and a response of 131,072 tokens takes at least 2,622 at 0.02 s per token, "
            "so long responses would always fail. Leave it out, then it is 26,214, or set it to "
            "more than the slowest response takes.",
        ),
        ("sample.request_timeout=2622", None),
        (
            "evaluate_after.request_timeout=60",
            "evaluate_after: evaluate_after.request_timeout (override "
            "evaluate_after.request_timeout=60) is 60 seconds, and a response of 129,024 tokens "
            "takes at least 2,581 at 0.02 s per token, so long responses would always fail. Leave "
            "it out, then it is 25,805, or set it to more than the slowest response takes.",
        ),
        ("sample.request_timeout=null", None),
    ],
)
def test_a_request_has_time_for_the_longest_response(override: str, said: str | None) -> None:
    expected = [] if said is None else [f"stage v15_opg/{said}"]
    assert verdict("v15_opg", "atlas_910c_16x8", override).errors == expected


def test_the_local_sampler_has_no_requests() -> None:
    found = verdict("v15_opg", "laptop", "sample.request_timeout=1", "sample.max_new_tokens=100")
    assert not any("request_timeout" in error for error in found.errors)


def test_rates_of_on_policy_training_are_checked_too() -> None:
    found = verdict("am_thinking_v1", "atlas_910c_rl", "rl_1.learning_rate=4")
    assert [one.split(" (")[0] for one in found.errors] == [
        "stage am_thinking_v1/rl_1: rl_1.learning_rate"
    ]


def test_the_shape_of_a_model_is_that_of_its_repository() -> None:
    wrong = ("train.model.num_layers=32", "train.model.intermediate_size=27640")
    assert verdict("v1_sft", "atlas_910c_16x8", *wrong).errors == [
        "stage v1_sft/train: train.model (override train.model.intermediate_size=27640) is not the "
        "shape of Qwen/Qwen2.5-32B: num_layers is 32, expected 64; intermediate_size is 27640, "
        "expected 27648. Correct train.model, or name other weights."
    ]


def test_amounts_of_memory_that_duckdb_and_mindspore_read(tmp_path: Path) -> None:
    launch = own_launch(tmp_path, "atlas_910c_16x8", duckdb_memory="64 gigs")
    assert verdict("v1_sft", launch).errors == [
        "placement.duckdb_memory: expected a number and a unit such as 64GB or 512MB, got "
        "'64 gigs'."
    ]
    read = ("64GB", "64 gb", "1.5TiB", "512MB", "64G", "80%")
    assert [text for text in read if not _OF_DUCKDB.fullmatch(text)] == []
    wrong = ("64", "-1", "0GB", "64 bytes", "")
    assert [text for text in wrong if _OF_DUCKDB.fullmatch(text)] == []
    assert [text for text in ("58GB", "3.5GB", "0.5GB") if not _OF_MINDSPORE.fullmatch(text)] == []
    assert [text for text in ("58", "58 GB", "58gb", "0GB") if _OF_MINDSPORE.fullmatch(text)] == []


def test_seconds_in_another_unit_are_told(tmp_path: Path) -> None:
    own = {"executable": "/opt/vllm/bin/vllm", "devices": 8, "start_seconds": 30}
    short = {"stall_seconds": 30, "cluster_time_out": 20, "sampling": own}
    found = verdict("v1_sft", own_launch(tmp_path, "atlas_910c_16x8", **short))
    assert found.errors == []
    assert [one.split(";")[0] for one in found.warnings] == [
        "placement.stall_seconds: is 30 seconds",
        "placement.cluster_time_out: is 20 seconds",
        "placement.sampling.start_seconds: is 30 seconds",
    ]


def test_a_section_that_mindformers_does_not_have_is_told() -> None:
    found = verdict(
        "v1_sft",
        "atlas_910c_16x8",
        "train.mindformers.runer_config.epochs=9",
        "train.mindformers.optimizer.eps=1.0e-6",
    )
    assert found.warnings == [
        "stage v1_sft/train: mindformers.runer_config is no section of MindFormers' configuration, "
        "which ignores it. Did you mean 'runner_config'?"
    ]


def test_an_after_that_scores_the_model_of_before_is_told() -> None:
    found = verdict("v15_opg", "atlas_910c_16x8", "evaluate_after.inputs.model=policy")
    assert found.errors == []
    assert found.warnings == [
        "stages v15_opg/evaluate_before and v15_opg/evaluate_after: both ask policy for aime24, "
        "aime25 with the same settings: their scores say nothing of a training between them. Give "
        "one of them another input model, or remove it."
    ]


def test_a_result_of_no_stage_is_told(tmp_path: Path) -> None:
    recipe = Path(own_recipe(tmp_path, "v1_sft"))
    recipe.write_text(recipe.read_text().replace("expect:\n  evaluate:", "expect:\n  evaluat:"))
    assert verdict(str(recipe)).warnings == [
        f"{recipe}: expect.evaluat: there is no such stage. Did you mean 'evaluate'?"
    ]
    assert verdict(str(recipe), until="train").warnings == []


def test_a_training_saves_before_its_end(tmp_path: Path) -> None:
    """27 174 responses, a row each: 212.3 steps of 128 rows an epoch, 1 061 in five epochs."""
    at_the_end = ("v15_opg", "atlas_910c_16x16", "train.checkpoint_steps=1061")
    found = verdict(*at_the_end)
    assert found.errors == []
    assert found.warnings == [
        "stage v15_opg/train: train.checkpoint_steps (override train.checkpoint_steps=1061) is "
        "1,061, and the training has 1,061 steps (pclr-ms plan): its only checkpoint comes at the "
        "end, and a training that is killed before it starts again. Lower train.checkpoint_steps, "
        "e.g. to 106."
    ]
    assert verdict("v15_opg", "atlas_910c_16x16", "train.checkpoint_steps=1060").warnings == []
    rounds = ("rl_1.max_rounds=20", "rl_1.checkpoint_rounds=20")
    [said] = verdict("am_thinking_v1", "atlas_910c_rl", *rounds).warnings
    assert "the training has 20 rounds at most (max_rounds)" in said
    # A training on this CPU is over in minutes.
    assert verdict("v15_opg", "laptop", "train.checkpoint_steps=5000").warnings == []
