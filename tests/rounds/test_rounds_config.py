"""The settings of on-policy training: what is refused, and the training that they mean."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError
from rl_helpers import rl_config, rl_settings

from pcl_reasoner.rounds.config import RlConfig


def problems_of(context: Any = None, **changes: Any) -> list[str]:
    """The messages of all errors."""
    with pytest.raises(ValidationError) as raised:
        RlConfig.model_validate(rl_settings(**changes), context=context)
    return [one["msg"] for one in raised.value.errors()]


def problem_of(context: Any = None, **changes: Any) -> str:
    (found,) = problems_of(context, **changes)
    return found


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"temperature": 0.6}, "on-policy responses are drawn with temperature 1, got temperature"),
        ({"top_k": 40, "top_p": 0.9}, "with top_k 0, top_p 1, got top_k 40, top_p 0.9: leave it"),
        ({"min_p": 0.1}, "with min_p 0, got min_p 0.1"),
        ({"repetition_penalty": 1.1}, "with repetition_penalty 1, got repetition_penalty 1.1"),
        ({"max_new_tokens": None}, "max_new_tokens is needed"),
        ({"max_model_len": 40}, "row_tokens must be at least max_model_len, got 32 and 40"),
        ({"precision": "float16"}, "precision float16 has no loss scale over several micro-steps"),
        ({"rows": 2}, "rows must be data_parallel x micro_batch_size, got 2 and 1 x 1"),
        ({"loss_parameters": {"on_policy": 0.5}}, "on_policy must be 1 (the policy itself"),
        ({"loss_parameters": {"on_policy": 0}}, "train_on_ratio is False, so loss_parameters."),
        (
            {"train_on_ratio": True, "loss_parameters": {"on_policy": 1.0}},
            "train_on_ratio is True, so loss_parameters.on_policy must be 0, got 1",
        ),
        ({"stop_if": {"correct_share_below": 0.1}}, "needs skip_without_advantage: false"),
        ({"keep_weights": 1, "engine": "server"}, "keep_weights must be at least 2 with servers"),
        ({"loss_parameters": {"epsilon": 0.2}}, "grpo has no parameter 'epsilon'"),
        ({"shuffle": True}, "Extra inputs are not permitted"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], words: str) -> None:
    found = problems_of(**changes)
    assert any(words in one for one in found), found


def test_all_problems_are_reported_at_once() -> None:
    wrong = {"temperature": 0.6, "top_p": 0.95, "max_model_len": 64, "max_new_tokens": None}
    said = problem_of(**wrong, rows=3, precision="float16")
    for words in (
        "drawn with temperature 1, top_p 1, got temperature 0.6, top_p 0.95",
        "max_new_tokens is needed",
        "row_tokens must be at least max_model_len",
        "precision float16",
        "got 3 and 1 x 1",
    ):
        assert words in said, words
    # One line of the same problem, though train's settings are checked, too.
    assert said.count("got 3 and 1 x 1") == 1


def test_a_group_of_one_is_refused() -> None:
    assert problem_of(n=1) == "Input should be greater than 1"


def test_off_policy_responses_need_to_be_allowed() -> None:
    assert rl_config(temperature=0.6, top_k=20, off_policy="allowed").temperature == 0.6


def test_a_plateau_needs_held_out_problems() -> None:
    roles = {"roles": ["problems", "policy"]}
    assert "plateau needs held-out problems" in problem_of(roles, plateau={})
    RlConfig.model_validate(rl_settings(plateau=None), context=roles)
    RlConfig.model_validate(rl_settings(plateau={}), context={"roles": ["held_out"]})
    RlConfig.model_validate(rl_settings(plateau={}))  # without a recipe nobody knows the inputs


@pytest.mark.parametrize("method", ["rubric", "python"])
def test_a_round_has_no_judge_and_no_function_of_the_user(method: str) -> None:
    grade: dict[str, Any] = {"kinds": {"math": "answer", "chat": method}}
    if method == "python":
        grade["python"] = {"file": "reward.py"}
    said = problem_of(grade=grade)
    assert "a round can be graded by answer, tests, instructions, reward_model, got" in said
    assert f"'chat': '{method}'" in said


@pytest.mark.parametrize("how", [{"method": "cascade"}, {"human": "disagreements.jsonl"}])
def test_a_round_is_graded_by_rule(how: dict[str, Any]) -> None:
    assert "no judge and no human verdicts" in problem_of(grade=how)


def test_the_training_that_is_meant() -> None:
    config = rl_config(rows=4, micro_batch_size=2, data_parallel=2, eps=1e-6, clip_grad=0.5)
    training = config.training
    assert (training.loss, training.loss_parameters) == ("grpo", {"on_policy": 1.0})
    assert (training.global_batch_size, training.micro_batch_size) == (4, 2)
    assert (training.seq_length, training.max_segments, training.devices) == (32, 4, 2)
    assert (training.eps, training.clip_grad, training.learning_rate) == (1e-6, 0.5, 1e-3)
    assert training.checkpoint_steps == rl_config().training.checkpoint_steps


def test_the_ratio_of_old_log_probs_is_a_choice() -> None:
    config = rl_config(train_on_ratio=True, loss_parameters={"eps_low": 0.1})
    assert config.training.loss_parameters == {"on_policy": 0.0, "eps_low": 0.1}


def test_the_longest_run_has_a_row_per_response() -> None:
    # 2 x 3 responses in rows of 4: at most 2 micro-steps per round, and one after the last.
    config = rl_config(rows=4, micro_batch_size=4, max_rounds=7)
    assert (config.responses, config.max_micro_steps) == (6, 15)


def test_limits_of_the_mismatch_do_not_change_the_artifact() -> None:
    """With other limits a stopped stage continues in the same folder."""
    plain = rl_config().hashed()
    assert rl_config(max_mismatch=0.1, stop_if={"skipped_steps": 3}).hashed() == plain
    assert rl_config(checkpoint_rounds=1).hashed().keys() == plain.keys()
    assert rl_config(seed=6).hashed() != plain


def test_servers_of_the_policy_and_of_the_reward_model() -> None:
    both = {"engine": "server", "grade": {"kinds": {"chat": "reward_model"}}}
    assert [one.kind for one in rl_config(**both).servers()] == ["sampling", "scoring"]
    assert rl_config(grade={"kinds": {"math": "answer"}}).servers() == []
