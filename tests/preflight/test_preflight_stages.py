"""Mistakes in recipes: inputs, prompts, columns, and what is only told."""

from __future__ import annotations

from pathlib import Path

import pytest
from preflight_helpers import own_recipe, verdict

from pcl_reasoner.core import files
from pcl_reasoner.grade import judging, rubric
from pcl_reasoner.preflight import prompts

OVERRIDE_MISTAKES: dict[str, tuple[str, list[str], list[str]]] = {
    "no prompt of the judge": (
        "v15_opg",
        ["grade.prompt=/none.txt"],
        [
            "stage v15_opg/grade: grade.prompt (override grade.prompt=/none.txt): /none.txt: the "
            "judge's prompt is not there. Correct the path, e.g. "
            f"{files.shipped('recipes') / 'prompts' / 'judge.txt'}, or leave the key out."
        ],
    ),
    "grpo without old log-probs": (
        "v15_opg",
        ["train.loss=grpo"],
        [
            "stage v15_opg/train: the loss grpo needs "
            "old_log_probs, and no stage before it makes them. Add the stage old_log_probs: "
            "{seq_length: 51200} and let pack read it (inputs: {samples: old_log_probs}), or use "
            "opg, sft or rft."
        ],
    ),
    "a loss of rewards on data without rewards": (
        "v1_sft",
        ["train.loss=asymre"],
        [
            "stage v1_sft/train: the loss asymre needs "
            "pass_rates, and no stage before it makes them. Train on graded responses "
            "(tokenize.source: responses), or use opg, sft or rft."
        ],
    ),
    "other words than in training": (
        "v15_opg",
        ["tokenize.system=Be brief."],
        [
            "the stages' prompts differ: sample and evaluate_before and evaluate_after use system "
            "None and suffix '\\nReason step by step and put the final answer in \\\\boxed{}.'; "
            "tokenize use system 'Be brief.' and suffix '\\nReason step by step and put the final "
            "answer in \\\\boxed{}.'. A model is sampled, trained and evaluated with the same "
            "words: give all these stages the same system and suffix."
        ],
    ),
    "a data set as weights": (
        "v15_opg",
        ["sources.policy.kind=dataset"],
        [
            f"stage v15_opg/{stage}: its input {role} needs a model, and source policy "
            "(PCL-Reasoner/V1) has the kind dataset. Name another source, or set "
            "sources.policy.kind=model."
            for stage, role in (
                ("lengths", "tokenizer"),
                ("sample", "policy"),
                ("tokenize", "policy"),
                ("train", "policy"),
                ("export", "policy"),
                ("evaluate_before", "model"),
                ("prove", "policy"),
            )
        ],
    ),
    "one response per problem, and mixed groups": (
        "v15_opg",
        ["sample.n=1"],
        [
            "stage v15_opg/select: select.drop_groups "
            f"({files.shipped('recipes') / 'v15_opg.yaml'}: choices.drop_groups.both) is both and "
            "sample.n (override sample.n=1) is 1: every problem has only correct or only "
            "incorrect responses, so all would be dropped. Raise sample.n, or set "
            "select.drop_groups to all_incorrect or none."
        ],
    ),
    "a large model on this CPU": (
        "v15_opg",
        ["sample.engine=local"],
        [
            "stage v15_opg/sample: sample.engine (override sample.engine=local) is local, which "
            "samples on this CPU, and its policy has 32.8 billion weights (train.model). Set "
            "sample.engine=server."
        ],
    ),
}
OLD = {"seq_length": 51200}
TP = {"model_parallel": 8}


@pytest.mark.parametrize("case", OVERRIDE_MISTAKES)
def test_an_override(case: str) -> None:
    recipe, overrides, said = OVERRIDE_MISTAKES[case]
    assert verdict(recipe, "atlas_910c_16x8", *overrides).errors == said


def test_old_log_probs_of_32b_do_not_fit_one_device(tmp_path: Path) -> None:
    read = {"pack": {"inputs": {"samples": "old_log_probs"}}, "train": {"loss": "grpo"}}
    recipe = own_recipe(tmp_path, "v15_opg", old_log_probs=OLD, **read)
    assert verdict(recipe).errors == [
        "stage v15_opg/old_log_probs: the weights of its policy take 122 GiB on a device (32.8 "
        "billion in float32, old_log_probs.model_parallel 1), and max_device_memory is 58GB. Set "
        "old_log_probs.model_parallel=4; all its ranks are on one host."
    ]
    assert verdict(recipe, "atlas_910c_16x8", "old_log_probs.model_parallel=4").errors == []


def test_a_stage_that_is_put_between_two_but_not_connected_is_told(tmp_path: Path) -> None:
    added = {"inputs": {"responses": "sample"}, "max_perplexity": None}
    recipe = own_recipe(tmp_path, "v15_opg", tidy=added)
    found = verdict(recipe)
    assert found.errors == []
    assert found.warnings == [
        "stage v15_opg/tidy: no stage reads its output, so it changes nothing. Name it in the "
        "inputs of the stage that needs it, e.g. inputs: {ROLE: tidy}, or remove it."
    ]


def test_a_training_that_is_not_exported_is_told() -> None:
    """The evaluation after the second training would score the first one."""
    found = verdict("am_thinking_v1", "atlas_910c_rl", "export_2.inputs.checkpoint=rl_1")
    assert found.errors == []
    assert [one.split(" Name")[0] for one in found.warnings] == [
        "stage am_thinking_v1/rl_2: no stage reads its output, so it changes nothing."
    ]


def test_a_checkpoint_is_no_policy(tmp_path: Path) -> None:
    wrong = {"inputs": {"problems": "mix_2", "policy": "rl_1", "reward_model": "reward"}}
    recipe = own_recipe(tmp_path, "am_thinking_v1", rl_2=wrong | {"plateau": None})
    assert (
        "stage am_thinking_v1/rl_2: its input policy needs a model, and rl_1 (a stage rl) writes "
        "a checkpoint, visits of problems, responses. Give it export_1."
    ) in verdict(recipe, "atlas_910c_rl").errors


def test_a_prompt_without_its_fields_is_refused(tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_text("Is {candidate} right?")
    override = f"grade.prompt={tmp_path}/p.txt"
    [said] = verdict("v15_opg", "atlas_910c_16x8", override).errors
    assert said.endswith("p.txt: the judge's prompt lacks {ground_truth}. Add it.")


def test_the_fields_of_prompts_are_those_that_the_stages_need(tmp_path: Path) -> None:
    assert prompts._MUST_HAVE["rubric_prompt"] == rubric.FIELDS
    (tmp_path / "p.txt").write_text("")
    config = judging.GradeConfig(prompt=str(tmp_path / "p.txt"))
    with pytest.raises(Exception, match="lacks {ground_truth} and {candidate}"):
        judging._prompt(config)
    assert prompts._MUST_HAVE["prompt"] == ("{ground_truth}", "{candidate}")


WARNINGS: dict[str, tuple[str, str, list[str], str]] = {
    "responses that are dropped later": (
        "v15_opg",
        "atlas_910c_16x8",
        ["select.max_response_tokens=60000"],
        "stage v15_opg/tokenize: select.max_response_tokens (override "
        "select.max_response_tokens=60000) is 60,000, and tokenize.max_segment_tokens is 51,200 "
        "with the prompt: the longest responses are selected and then dropped. Raise "
        "tokenize.max_segment_tokens, or lower select.max_response_tokens.",
    ),
    "scores that cannot be compared": (
        "v15_opg",
        "atlas_910c_16x8",
        ["evaluate_after.temperature=1.0"],
        "stages v15_opg/evaluate_before and v15_opg/evaluate_after: ask aime24 with different "
        "temperature 0.6 and 1.0: their scores cannot be compared. Give both the same values.",
    ),
    "a choice that does not count": (
        "v15_opg",
        "laptop",
        ["choices.cot_cap=binary"],
        "override choices.cot_cap=binary sets select.max_response_tokens to 49152, and "
        f"{files.shipped('recipes') / 'profiles' / 'v15_opg_laptop.yaml'} sets it to 80, which "
        "counts. Give select.max_response_tokens=49152 to have it.",
    ),
}


@pytest.mark.parametrize("case", WARNINGS)
def test_a_warning(case: str) -> None:
    recipe, launch, overrides, said = WARNINGS[case]
    found = verdict(recipe, launch, *overrides)
    assert (found.errors, found.warnings) == ([], [said])


def test_a_benchmark_that_is_not_compared_with_the_data_is_told(tmp_path: Path) -> None:
    only = {"inputs": {"benchmark": ["aime24"]}}
    found = verdict(own_recipe(tmp_path, "v15_opg", contamination=only))
    assert found.errors == []
    assert found.warnings == [
        f"stage v15_opg/{stage}: asks aime25, and contamination does not compare the training data "
        "with it. Add it to contamination.inputs.benchmark, or read the score as possibly "
        "contaminated."
        for stage in ("evaluate_before", "evaluate_after")
    ]


def test_token_ids_of_another_model_are_told(tmp_path: Path) -> None:
    sample = {"inputs": {"policy": "other"}}
    recipe = own_recipe(tmp_path, "v15_opg", sample=sample)
    text = Path(recipe).read_text()
    other = "sources:\n  other: {hub: Qwen/Qwen3-32B, revision: main, kind: model}\n"
    Path(recipe).write_text(text.replace("sources:\n", other, 1))
    found = verdict(recipe, "atlas_910c_16x8", "sample.max_model_len=40960")
    assert found.errors == []
    assert found.warnings == [
        "stage v15_opg/tokenize: takes the token ids of Qwen/Qwen3-32B, which sample sampled from, "
        "for PCL-Reasoner/V1. If the two have different tokenizers, set tokenize.encode_text=true: "
        "the texts are then encoded again."
    ]


def test_a_model_of_another_recipe_is_asked_with_its_words() -> None:
    words = ("sample.suffix=A", "tokenize.suffix=A", "evaluate_before.suffix=A")
    found = verdict("v15_opg", "laptop", *words, "evaluate_after.suffix=A").errors
    assert found == [
        f"stage v15_opg/{stage}: asks with system None and suffix 'A', and v1_sft/tokenize trains "
        f"its {role} with system None and suffix ''. Give the stage the same words; leave system "
        "out to take that of the exported chat template."
        for stage, role in (
            ("sample", "policy"),
            ("tokenize", "policy"),
            ("evaluate_before", "model"),
        )
    ]


def test_a_teacher_may_be_asked_with_other_words_than_the_model_that_it_teaches() -> None:
    teacher = ("sample_sft.system=Be a teacher.", "sample_truth.system=Be a teacher.")
    assert verdict("am_thinking_v1", "laptop", *teacher).errors == []
    [said] = verdict("am_thinking_v1", "laptop", teacher[0]).errors
    assert "sample_truth use system None " in said and "sample_sft use system 'B" in said
    [said] = verdict("am_thinking_v1", "laptop", "evaluate_sft.system=Be brief.").errors
    assert "evaluate_sft use system 'Be brief.'" in said


CIRCLE = """name: {own}
sources: {{x: {{recipe: {other}.yaml, stage: mix}}}}
stages: {{mix: {{inputs: {{problems: x}}}}}}
"""


def test_recipes_that_read_each_other_in_a_circle_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(CIRCLE.format(own="a", other="b"))
    (tmp_path / "b.yaml").write_text(CIRCLE.format(own="b", other="a"))
    assert verdict(str(tmp_path / "a.yaml"), "laptop").errors == [
        "stages read one another in a circle: a/mix -> b/mix -> a/mix. Let one of them "
        "read another stage or a source."
    ]


@pytest.mark.parametrize(
    ("proof", "expected"),
    [
        ("prove", "prove proves export, and this stage asks policy. Name a stage prove whose"),
        ("local", "local.engine is local: no server was compared there. Name a stage prove"),
    ],
)
def test_a_proof_that_is_not_of_the_model_that_is_asked(
    tmp_path: Path, proof: str, expected: str
) -> None:
    inputs = {"model": "policy", "benchmark": ["aime24", "aime25"], "proof": proof}
    local = {"stage": "prove", "engine": "local"}
    recipe = own_recipe(tmp_path, "v15_opg", evaluate_before={"inputs": inputs}, local=local)
    (error,) = verdict(recipe).errors
    wrong = f"stage v15_opg/evaluate_before: its input proof does not fit: {expected}"
    assert error.startswith(wrong)


def test_a_proof_is_what_a_stage_prove_writes(tmp_path: Path) -> None:
    inputs = {"model": "export", "benchmark": ["aime24", "aime25"], "proof": "export"}
    recipe = own_recipe(tmp_path, "v15_opg", evaluate_after={"inputs": inputs})
    assert verdict(recipe).errors == [
        "stage v15_opg/evaluate_after: its input proof needs a proof, and export (a stage export) "
        "writes a model. Give it prove."
    ]
