"""Lengths in tokens that do not fit one another, or the model."""

from __future__ import annotations

from pathlib import Path

import pytest
from preflight_helpers import own_launch, verdict

from pcl_reasoner.core import files

VLLM = {"executable": "/opt/vllm/bin/vllm"}
CONTEXT = "or have the server extend the context (vLLM's --hf-overrides)."
LENGTHS: dict[str, tuple[str, list[str], list[str]]] = {
    "rows of 16384 for a training of 32768": (
        "v1_sft",
        ["pack.seq_length=16384", "tokenize.max_segment_tokens=16384"],
        [
            "stage v1_sft/train: train.seq_length is 32,768, and pack.seq_length (override "
            "pack.seq_length=16384) is 16,384. Set both to the same: the rows are trained as they "
            "are packed."
        ],
    ),
    "more segments than the training reads": (
        "v1_sft",
        ["train.max_segments=16"],
        [
            "stage v1_sft/train: train.max_segments (override train.max_segments=16) is 16, and "
            "pack.max_segments is 128: a row can have more segments than the training reads. Set "
            "train.max_segments to 128."
        ],
    ),
    "segments longer than rows": (
        "v1_sft",
        ["tokenize.max_segment_tokens=40000"],
        [
            "stage v1_sft/pack: tokenize.max_segment_tokens (override "
            "tokenize.max_segment_tokens=40000) is 40,000, and pack.seq_length is 32,768: the "
            "first longer segment is an error. Set tokenize.max_segment_tokens to at most 32768."
        ],
    ),
    "no room for a prompt": (
        "v15_opg",
        ["sample.max_new_tokens=131072"],
        [
            "stage v15_opg/sample: sample.max_new_tokens (override sample.max_new_tokens=131072) "
            "is 131,072, and sample.max_model_len is 131,072, which the prompt and the response "
            "share. Lower sample.max_new_tokens, or raise sample.max_model_len."
        ],
    ),
    "no room for what a judge reads": (
        "v15_opg",
        ["grade.last_tokens=9000"],
        [
            "stage v15_opg/grade: grade.last_tokens (override grade.last_tokens=9000) and "
            "grade.judge_max_new_tokens are 17,192 tokens together, and grade.judge_max_model_len "
            "is 16,384. Raise grade.judge_max_model_len, or lower one of the others."
        ],
    ),
    "a context over the model's": (
        "v15_opg",
        ["sample.max_model_len=262144"],
        [
            "stage v15_opg/sample: sample.max_model_len (override sample.max_model_len=262144) is "
            "262,144; the context of its policy is 131,072 tokens (train.model). Set "
            f"sample.max_model_len to at most 131072, {CONTEXT}"
        ],
    ),
    "a segment over the model's context": (
        "v1_sft",
        ["train.model.max_position_embedding=16384", "evaluate.max_model_len=16384"]
        + ["prove.max_model_len=16384", "evaluate.max_new_tokens=8192"],
        [
            "stage v1_sft/tokenize: tokenize.max_segment_tokens is 32,768, and the context of its "
            "policy is 16,384 tokens (train.model). Set it to at most 16384."
        ],
    ),
}


@pytest.mark.parametrize("case", LENGTHS)
def test_a_length(case: str) -> None:
    recipe, overrides, said = LENGTHS[case]
    assert verdict(recipe, "atlas_910c_16x8", *overrides).errors == said


def test_a_server_with_another_context_is_not_refused(tmp_path: Path) -> None:
    longer = ["--hf-overrides", '{"max_position_embeddings": 262144}']
    launch = own_launch(tmp_path, "atlas_910c_16x8", sampling={**VLLM, "arguments": longer})
    assert verdict("v15_opg", launch, "sample.max_model_len=262144").errors == []


def test_a_scorer_generates_one_token_more() -> None:
    words = ("perplexity.seq_length=32768",)
    assert verdict("am_thinking_v1", "atlas_910c_rl", *words).errors == [
        "stage am_thinking_v1/perplexity: perplexity.seq_length (override "
        "perplexity.seq_length=32768) is 32,768, and the server needs 1 more; the context of its "
        "policy is 32,768 tokens (Qwen/Qwen2.5-32B-Instruct). Set perplexity.seq_length to at most "
        f"32767, {CONTEXT}"
    ]
    assert verdict("am_thinking_v1", "atlas_910c_rl", "perplexity.over_length=error").errors == [
        "stage am_thinking_v1/perplexity: sample_sft.max_model_len is 32,768, and "
        "perplexity.seq_length is 32,767: the first longer response is an error. Set "
        "perplexity.over_length=drop, or make it at least 32768."
    ]


@pytest.mark.parametrize("key", ["max_model_len=16384", "max_new_tokens=4096"])
def test_responses_to_problems_with_long_ones_are_not_cut(key: str) -> None:
    """`lengths` keeps means of 32 000 tokens and more."""
    name, _, number = key.partition("=")
    found = verdict("v15_opg", "atlas_910c_16x16", f"sample.{key}")
    assert found.errors == []
    assert found.warnings == [
        f"stage v15_opg/sample: sample.{name} (override sample.{key}) is {int(number):,}, and "
        f"lengths.min_mean_tokens ({files.find('v15_opg', 'recipes')}: choices.mean_length.code) "
        "keeps only problems whose responses have 32,000 tokens or more on average: most responses "
        f"would be cut before their answer. Raise sample.{name}, or lower lengths.min_mean_tokens."
    ]
    enough = ("sample.max_model_len=40000", "sample.max_new_tokens=32000")
    assert verdict("v15_opg", "atlas_910c_16x16", *enough).warnings == []
