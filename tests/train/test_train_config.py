"""Settings that cannot be trained are refused before anything starts."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError
from train_helpers import train_config


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"device": "Ascend", "global_batch_size": 6, "data_parallel": 4},
            "global_batch_size must be a multiple of data_parallel x micro_batch_size, "
            "got 6 for 4 x 1",
        ),
        (
            {"device": "Ascend", "global_batch_size": 4, "data_parallel": 2, "pipeline_stage": 4},
            "a pipeline of 4 stages needs at least as many micro-batches, got 2",
        ),
        (
            {"device": "Ascend", "global_batch_size": 4},
            "accumulates gradients on several ranks only: .* got 2 x 1 for 4",
        ),
        (
            {"device": "Ascend", "global_batch_size": 4, "data_parallel": 2},
            "compressed_mask false does not compile with several micro-batches .* got 2 and 2",
        ),
        (
            {"global_batch_size": 4, "micro_batch_size": 2},
            "a CPU cannot accumulate gradients: .* got 2 x 1 for 4",
        ),
        (
            {"device": "Ascend", "global_batch_size": 4, "data_parallel": 2, "pipeline_stage": 2},
            "compressed_mask false does not compile with several .* over 1, got 2 and 2",
        ),
        ({"loss": "opgg"}, "unknown loss. Did you mean 'opg'. Known: opg, "),
        (
            {"loss": "opg", "loss_parameters": {"delta": 0.1}},
            "opg has no parameter 'delta'. It has: none",
        ),
        (
            {"loss": "grpo", "loss_parameters": {"on_policy": 0.5}},
            r"grpo's on_policy must be 1 \(the policy itself samples\) or 0, got 0.5",
        ),
        (
            {"loss": "gspo", "loss_parameters": {"on_policy": 1.0}},
            "gspo has no parameter 'on_policy'",
        ),
        ({"learning_rate": 0}, "greater than 0"),
        ({"warmup_ratio": 1.0}, "less than 1"),
        ({"seq_lenght": 8}, "Extra inputs are not permitted"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        train_config(**changes)


def test_the_papers_layout() -> None:
    config = train_config(
        device="Ascend",
        precision="bfloat16",
        compressed_mask=True,
        global_batch_size=128,
        data_parallel=8,
        model_parallel=8,
        pipeline_stage=2,
    )
    assert (config.devices, config.micro_batch_num) == (128, 16)
