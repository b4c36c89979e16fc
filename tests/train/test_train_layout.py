"""A layout that cannot be is refused with the recipe: all of it at once, each by its numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pcl_reasoner.cli.main import cli
from pcl_reasoner.core.errors import InputError
from pcl_reasoner.runner.plan import make_plan
from pcl_reasoner.runner.recipe import load_recipe
from pcl_reasoner.train.layout import batch_problems, device_problems

QWEN_7B = {
    "model_type": "qwen2",
    "num_hidden_layers": 28,
    "hidden_size": 3584,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "intermediate_size": 18944,
    "vocab_size": 152064,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "max_position_embeddings": 131072,
}


def test_ranks_are_the_devices_of_the_launch_file() -> None:
    assert device_problems(8, 8, 2, hosts=16, devices_per_host=8) == []
    [said] = device_problems(4, 8, 2, hosts=16, devices_per_host=8)
    assert said.endswith("got 4 x 8 x 2 = 64 ranks for 16 hosts x 8 devices = 128")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        # 128 rows over 8 ranks, one at a time: 16 micro-batches for 2 stages.
        ((128, 1, 8, 2, "Ascend"), []),
        ((128, 1, 6, 2, "Ascend"), ["got 128 for 6 x 1"]),
        # 8 rows over 4 ranks: 2 micro-batches for 4 stages.
        (
            (8, 1, 4, 4, "Ascend"),
            ["a pipeline of 4 stages needs at least as many micro-batches, got 2"],
        ),
        (
            (12, 1, 4, 4, "Ascend"),
            ["a pipeline of 4 stages needs at least as many micro-batches, got 3"],
        ),
        ((16, 1, 4, 4, "Ascend"), []),
        ((10, 1, 4, 4, "Ascend"), ["got 10 for 4 x 1", "as many micro-batches, got 2"]),
        ((128, 1, 8, 1, "Ascend"), []),
        ((2, 1, 1, 1, "Ascend", 1), ["on several ranks only: micro_batch_size x data_parallel"]),
        ((4, 1, 2, 1, "CPU"), ["a CPU cannot accumulate gradients"]),
        ((4, 2, 2, 1, "CPU"), []),
    ],
)
def test_rows_over_ranks_and_micro_batches(values: tuple[Any, ...], said: list[str]) -> None:
    found = batch_problems(*values, ranks=8) if len(values) == 5 else batch_problems(*values)
    assert len(found) == len(said)
    for sentence, part in zip(found, said, strict=True):
        assert part in sentence


def problems(recipe: str = "v1_sft", *overrides: str) -> str:
    with pytest.raises(InputError) as caught:
        load_recipe(recipe, "v1_dp8_tp8_pp2", overrides=overrides)
    return str(caught.value)


def test_everything_that_is_wrong_is_said_at_once() -> None:
    """TP 3 divides neither 40 heads, 8 key-value heads nor 152 064 + 1; DP 7 not 128 rows."""
    said = problems(
        "v1_sft",
        "train.model_parallel=3",
        "train.data_parallel=7",
        "train.model.num_layers=63",
        "train.model.vocab_size=152065",
        "train.model.intermediate_size=27649",
        "train.recompute=[1,2,3]",
        "pack.seq_length=0",
    )
    for part in (
        "got 7 x 3 x 2 = 42 ranks for 16 hosts x 8 devices = 128",
        "global_batch_size must be a multiple of data_parallel x micro_batch_size, got 128 for 7",
        "num_heads must be a multiple of model_parallel, got 40 for 3",
        "n_kv_heads must be a multiple of model_parallel, got 8 for 3",
        "intermediate_size must be a multiple of model_parallel, got 27649 for 3",
        "vocab_size must be a multiple of model_parallel, got 152065 for 3",
        "num_layers must be a multiple of pipeline_stage, got 63 for 2",
        "recompute must be one number for each pipeline stage, got 3 for 2",
        "micro_batch_size x seq_length must be a multiple of model_parallel, got 32768 for 3",
        "seq_length: Input should be greater than 0",
    ):
        assert part in said, part


def write_weights(folder: Path, **changes: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(QWEN_7B | changes))
    return folder


def with_weights(folder: Path) -> tuple[str, ...]:
    return (f"sources.policy.path={folder}", "train.model=null")


def test_weights_that_are_here_are_checked_before_anything_runs(tmp_path: Path) -> None:
    """Over V1's TP 8 go neither 28 heads nor 4 key-value heads; over its PP 2 go 28 layers."""
    said = problems("v1_sft", *with_weights(write_weights(tmp_path / "7b")))
    assert f"{tmp_path / '7b'}/config.json: num_heads must be a multiple" in said
    assert "got 28 for 8" in said and "n_kv_heads must be a multiple" in said
    assert "num_layers" not in said


def test_weights_that_the_recipe_contradicts_are_an_error_before_anything_runs(
    tmp_path: Path,
) -> None:
    fits = {"num_attention_heads": 40, "hidden_size": 5120, "num_key_value_heads": 8}
    folder = write_weights(tmp_path / "w", **fits, num_hidden_layers=64)
    said = problems("v1_sft", with_weights(folder)[0])
    assert "intermediate_size is 27648 in the recipe, 18944 in the weights" in said
    assert load_recipe("v1_sft", "v1_dp8_tp8_pp2", overrides=with_weights(folder))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"model_type": "llama"}', "model_type is 'llama', expected 'qwen2'"),
        ('{"model_type": "qwen2"}', "has no num_hidden_layers, which every Qwen2 model has"),
        ("{", "cannot be read as JSON"),
        ("[]", "must be a JSON object, got list"),
    ],
)
def test_a_config_json_that_is_none_is_said(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "config.json").write_text(text)
    assert said in problems("v1_sft", *with_weights(tmp_path))


def validate(*words: str) -> tuple[int, str]:
    answer = CliRunner().invoke(cli, ["validate", "v1_sft", *words])
    return answer.exit_code, answer.output


def test_validate_says_what_it_could_not_check(tmp_path: Path) -> None:
    launch = ("--launch", "v1_dp8_tp8_pp2")
    code, said = validate(*launch, "train.model=null")
    assert code == 0 and "not checked: stage train: heads, layers, vocabulary and widths" in said
    assert "the weights of 'policy' are not here" in said
    code, said = validate(*launch)
    assert code == 0 and "not checked" not in said and said.endswith("ok: 9 stages\n")
    # 16 heads and 8 key-value heads go over TP 8, 18 944 and 152 064 do, too.
    folder = write_weights(tmp_path / "w", num_attention_heads=16, num_key_value_heads=8)
    code, said = validate(*launch, *with_weights(folder))
    assert code == 0 and "not checked" not in said and said.endswith("ok: 9 stages\n")


def test_weights_that_were_fetched_are_checked_before_the_first_stage(tmp_path: Path) -> None:
    """The hub's folder is known once runs are; a run stops before it reads or writes any data."""
    questions = tmp_path / "questions.jsonl"
    questions.write_text('{"id": "one", "problem": "1 + 1?", "answer": "2"}\n')
    given = tuple(f"sources.{name}.path={questions}" for name in ("aime24", "aime25"))
    recipe = load_recipe("v1_sft", "v1_dp8_tp8_pp2", overrides=given)
    plan = make_plan(recipe, tmp_path, until="train")
    policy = plan.stages[-1].inputs["policy"].path
    policy.mkdir(parents=True)
    write_weights(policy)
    words = ["run", "v1_sft", *given, "--launch", "v1_dp8_tp8_pp2", "--runs", str(tmp_path)]
    answer = CliRunner().invoke(cli, [*words, "--until", "train"])
    said = str(answer.exception)
    assert f"stage v1_sft/train: {policy}/config.json: num_layers is 64 in the recipe, 28" in said
    assert "num_heads must be a multiple of model_parallel, got 28 for 8" in said
    assert not (tmp_path / "v1_sft").exists()
