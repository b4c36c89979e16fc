"""Servers whose devices cannot hold their model: refused by what `pclr-ms plan` computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from preflight_helpers import own_launch, verdict

VLLM = {"executable": "/opt/vllm/bin/vllm", "start_seconds": 3600}
ONE_DIE = {**VLLM, "servers": 16, "devices": 1}


def refused(folder: Path, sampling: dict[str, Any], judging: dict[str, Any] = VLLM) -> list[str]:
    both = {"sampling": sampling, "judging": {"servers": 2, "devices": 8, **judging}}
    return verdict("v15_opg", own_launch(folder, "atlas_910c_16x16", **both)).errors


def test_a_server_of_one_die_for_32_billion_weights(tmp_path: Path) -> None:
    """32.8e9 x 2 bytes = 61 GiB; 0.9 of 64 GiB are 57.6."""
    errors = refused(tmp_path, ONE_DIE, ONE_DIE)
    assert [one.split(" describes")[0] for one in errors] == [
        "stage v15_opg/sample: placement.sampling",
        "stage v15_opg/grade: placement.judging",
    ]
    assert errors[0].endswith(
        " describes servers of 1 device (one die of an Ascend 910C package) for its policy "
        "(train.model), and they cannot hold the weights and one response: they have 64 GiB and "
        "vLLM takes 90% of it, and the weights take 61 GiB. Set sampling.devices to 2 or more, and "
        "sampling.servers to at most 8."
    )


@pytest.mark.parametrize(
    "sampling",
    [
        {**ONE_DIE, "servers": 8, "devices": 2},
        # Two pipeline stages are two dies; quantized weights are smaller, by how much is unknown.
        {**ONE_DIE, "servers": 8, "arguments": ["--pipeline-parallel-size", "2"]},
        {**ONE_DIE, "arguments": ["--quantization=ascend"]},
    ],
)
def test_servers_that_are_large_enough(tmp_path: Path, sampling: dict[str, Any]) -> None:
    assert not [one for one in refused(tmp_path, sampling) if "cannot hold" in one]


def test_a_copy_of_the_model_has_its_own_devices(tmp_path: Path) -> None:
    copies = {**ONE_DIE, "servers": 1, "arguments": ["--data-parallel-size", "16"]}
    [said] = [one for one in refused(tmp_path, copies) if "cannot hold" in one]
    assert "servers of 1 device " in said


def test_a_7b_model_fits_one_die(tmp_path: Path) -> None:
    one = own_launch(tmp_path, "one_node_7b", sampling={**VLLM, "servers": 8, "devices": 1})
    assert not [text for text in verdict("v1_sft", one).errors if "cannot hold" in text]


def test_a_model_with_experts_is_refused_where_its_stage_runs() -> None:
    """The teacher's stages have a launch file of their own; the others take their artifacts."""
    words = ("am_thinking_v1", "atlas_910c_16x8")
    assert verdict(*words, until="export").errors == []
    [said] = verdict(*words, until="export", to_run={"am_thinking_v1/sample_sft"}).errors
    assert "servers of 8 devices" in said and "deepseek-ai/DeepSeek-R1" in said
    assert said.endswith("the weights take 625 GiB. Set sampling.devices to 16 or more.")
