"""Which sampling settings are in a fingerprint, and how long a client waits for an answer."""

from __future__ import annotations

from typing import Any

import pytest

from pcl_reasoner.evaluate.stage import EvaluateConfig
from pcl_reasoner.inference.settings import SamplingConfig
from pcl_reasoner.rounds.config import RlConfig
from pcl_reasoner.sample.stage import SampleConfig

FREE = {"request_timeout": 5.0, "retries": 9, "max_failed": 0.5, "concurrency": 7}


@pytest.mark.parametrize("config", [SampleConfig, EvaluateConfig])
def test_what_does_not_change_responses_names_no_stage(config: type[SamplingConfig]) -> None:
    plain = config()
    assert plain.model_copy(update=FREE).hashed() == plain.hashed()
    assert plain.model_copy(update={"seed": 1}).hashed() != plain.hashed()


def test_on_policy_training_is_named_without_them_too() -> None:
    marked = {name: RlConfig.model_fields[name].metadata for name in FREE}
    assert all("not hashed" in marks for marks in marked.values())


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [
        # The longest response: 130 872 tokens x 0.2 s, 3.6 times the 0.0548 s of the plan.
        ({"max_new_tokens": 130872}, 26174.4),
        ({}, 26214.4),  # the whole context, 131 072 tokens
        ({"max_new_tokens": 36000}, 7200.0),
        ({"max_new_tokens": 100, "max_model_len": 200}, 7200.0),
        ({"max_new_tokens": 130872, "request_timeout": 9000.0}, 9000.0),
    ],
)
def test_an_answer_has_as_much_time_as_the_longest_takes(
    fields: dict[str, Any], seconds: float
) -> None:
    assert SamplingConfig(**fields).answer_seconds() == pytest.approx(seconds)


def test_no_answer_of_a_benchmark_may_fail() -> None:
    assert (EvaluateConfig().max_failed, SampleConfig().max_failed) == (0.0, 0.05)
