"""Every mistake is refused with one sentence that says where, what, and what to do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from preflight_helpers import own_launch, own_recipe, verdict

from pcl_reasoner.core import files
from pcl_reasoner.core.errors import InputError
from pcl_reasoner.grade import judging, rubric
from pcl_reasoner.preflight import prompts
from pcl_reasoner.preflight.rules import RULES
from pcl_reasoner.runner.recipe import load_recipe

DIES = ",".join(str(number) for number in range(8))
VLLM = {"executable": "/opt/vllm/bin/vllm"}
OTHERS = (
    "Name hosts that only sample, placement: {rollout: {hosts: […]}}, and lower the layout of the "
    "stage to the others; or put sampling elsewhere."
)

LAUNCH_MISTAKES: dict[str, tuple[str, str, dict[str, Any], list[str]]] = {
    "nobody serves the policy": (
        "v15_opg",
        "atlas_910c_16x8",
        {"sampling": None},
        [
            "stages v15_opg/sample and v15_opg/evaluate_before and v15_opg/prove and "
            "v15_opg/evaluate_after: no server of the policy. Set placement.server_urls in the "
            "launch file, or have the stage start them: placement: {sampling: {executable: "
            "/path/to/vllm}}."
        ],
    ),
    "nobody serves the judge": (
        "v15_opg",
        "atlas_910c_16x8",
        {"judge_urls": None},
        [
            "stage v15_opg/grade: no server of the judge. Set placement.judge_urls in the launch "
            "file, or have the stage start them: placement: {judging: {executable: /path/to/vllm}}."
        ],
    ),
    "a judge is started without weights": (
        "v15_opg",
        "atlas_910c_16x8",
        {"judge_urls": None, "judging": VLLM},
        [
            "stage v15_opg/grade: the launch file's placement.judging starts the judge and needs "
            "its weights: give the stage the input judge, e.g. inputs: {judge: SOURCE} with "
            "sources: {SOURCE: {path: FOLDER, kind: model}}."
        ],
    ),
    "three servers of eight devices on sixteen": (
        "v15_opg",
        "atlas_910c_teacher",
        {"sampling": {**VLLM, "servers": 3, "devices": 8}},
        [
            "stage v15_opg/sample: placement.sampling starts 3 servers x 8 devices = 24 on each "
            "host, and devices_per_host is 16. Set sampling.servers and sampling.devices so that "
            "they fit, or raise devices_per_host if the host has more."
        ],
    ),
    "fewer devices are listed than a server takes": (
        "v1_sft",
        "atlas_910c_16x8",
        {"sampling": {**VLLM, "devices": 8, "environment": {"ASCEND_RT_VISIBLE_DEVICES": "0,1"}}},
        [
            "stage v1_sft/prove: placement.sampling starts 1 servers x 8 devices = 8 on each "
            "host, and ASCEND_RT_VISIBLE_DEVICES lists 2. Set sampling.servers and "
            "sampling.devices so that they fit."
        ],
    ),
    "six devices for forty heads": (
        "v1_sft",
        "atlas_910c_16x8",
        {"sampling": {**VLLM, "devices": 6}},
        [
            f"stage v1_sft/{stage}: placement.sampling.devices is 6, and its model has 40 "
            "attention heads (train.model), which vLLM divides among the devices of a server. Set "
            "it to one of 1, 2, 4, 5, 8, 10."
            for stage in ("prove", "evaluate")
        ],
    ),
    "servers where an rl stage trains": (
        "am_thinking_v1",
        "atlas_910c_teacher",
        {"sampling": {**VLLM, "devices": 8}, "scoring": {**VLLM, "port": 9000}},
        [
            *(
                f"stage am_thinking_v1/rl_{number}: trains on 16 hosts (node01 to node16), and "
                "placement.sampling starts servers of the policy there, both on devices 0 to 7. "
                + OTHERS
                for number in (1, 2)
            ),
            "stage am_thinking_v1/rl_2: trains on 16 hosts (node01 to node16), and "
            "placement.scoring starts servers of the reward model there, both on device 0. "
            + OTHERS.replace("sampling elsewhere", "scoring elsewhere"),
            "stage am_thinking_v1/rl_2: placement.sampling and placement.scoring start servers of "
            "the policy and of the reward model, both on device 0 of each host. Give scoring "
            'devices of its own: environment: {ASCEND_RT_VISIBLE_DEVICES: "…"}.',
        ],
    ),
    "running servers where an rl stage trains": (
        "am_thinking_v1",
        "one_node_7b",
        {
            "sampling": None,
            "server_urls": ["http://localhost:8000/v1"],
            "score_urls": ["http://s:1/v1"],
        },
        [
            f"stage am_thinking_v1/rl_{number}: trains on localhost, and placement.server_urls "
            "names servers there, http://localhost:8000/v1 (if they have other devices, list the "
            "training's in placement.env: ASCEND_RT_VISIBLE_DEVICES). " + OTHERS
            for number in (1, 2)
        ],
    ),
    "the reward model on the policy's device": (
        "am_thinking_v1",
        "atlas_910c_rl",
        {"scoring": {**VLLM, "devices": 1}},
        [
            "stage am_thinking_v1/rl_2: placement.sampling and placement.scoring start servers of "
            "the policy and of the reward model, both on device 0 of each host. Give scoring "
            'devices of its own: environment: {ASCEND_RT_VISIBLE_DEVICES: "…"}.'
        ],
    ),
    "the port of msrun's scheduler": (
        "v1_sft",
        "atlas_910c_16x8",
        {"master_port": 8000},
        [
            "placement.sampling: its servers use the ports 8000 to 8000, and master_port is 8000. "
            "Choose another sampling.port or master_port."
        ],
    ),
    "localhost among several hosts": (
        "v1_sft",
        "atlas_910c_16x8",
        {"hosts": ["localhost", *(f"n{number}" for number in range(15))]},
        [
            "placement.hosts: localhost stands among 16 hosts, and on each of them it means that "
            "host itself: the others could not reach the scheduler. Write the name or address by "
            "which the other hosts know it."
        ],
    ),
}
CONTEXT = "or have the server extend the context (vLLM's --hf-overrides)."
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


@pytest.mark.parametrize("case", LAUNCH_MISTAKES)
def test_a_launch_file(case: str, tmp_path: Path) -> None:
    recipe, launch, placement, said = LAUNCH_MISTAKES[case]
    assert verdict(recipe, own_launch(tmp_path, launch, **placement)).errors == said


@pytest.mark.parametrize("case", OVERRIDE_MISTAKES)
def test_an_override(case: str) -> None:
    recipe, overrides, said = OVERRIDE_MISTAKES[case]
    assert verdict(recipe, "atlas_910c_16x8", *overrides).errors == said


def test_one_server_for_policy_and_judge(tmp_path: Path) -> None:
    urls = {"server_urls": ["http://a:1/v1"], "judge_urls": ["http://a:1/v1/"]}
    launch = own_launch(tmp_path, "atlas_910c_16x8", sampling=None, **urls)
    assert verdict("v15_opg", launch).errors == []
    assert verdict("v15_opg", launch, "grade.judge_model=policy").errors == [
        "http://a:1/v1 is in placement.server_urls and placement.judge_urls, and both ask it for "
        "the model 'policy': one of them would get the other's answers. Serve them under two names "
        "or at two URLs."
    ]


def test_a_url_without_http_is_refused_with_the_launch_file(tmp_path: Path) -> None:
    launch = own_launch(tmp_path, "atlas_910c_16x8", sampling=None, server_urls=["node01:8000"])
    with pytest.raises(InputError) as error:
        load_recipe("v15_opg", launch)
    assert str(error.value) == (
        f"{launch}: placement.server_urls: must be the base URL of a server such as "
        "http://host:8000/v1, without ? and #."
    )


OLD = {"seq_length": 51200}
TP = {"model_parallel": 8}


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


def test_a_server_with_another_context_is_not_refused(tmp_path: Path) -> None:
    longer = ["--hf-overrides", '{"max_position_embeddings": 262144}']
    launch = own_launch(tmp_path, "atlas_910c_16x8", sampling={**VLLM, "arguments": longer})
    assert verdict("v15_opg", launch, "sample.max_model_len=262144").errors == []


def test_vllm_cpu_has_no_devices(tmp_path: Path) -> None:
    several = {"executable": "/venv/bin/python", "servers": 3, "devices": 8}
    launch = own_launch(tmp_path, "atlas_910c_16x8", sampling=several)
    assert verdict("v1_sft", launch).errors == []


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


def test_running_servers_are_told_to_be_stopped_and_exchanged(tmp_path: Path) -> None:
    running = {"sampling": None, "server_urls": [f"http://node0{n}:8000/v1" for n in (1, 2, 3)]}
    found = verdict("v15_opg", own_launch(tmp_path, "atlas_910c_16x8", **running))
    assert found.errors == []
    assert found.warnings == [
        "placement.server_urls: several models are asked of the same servers (sample, "
        "evaluate_before: 'policy' with the weights of policy; prove, evaluate_after: 'policy' "
        "with the weights of export). Exchange the servers between these stages (run --until "
        "STAGE ends a run there), or have the stages start them: placement: {sampling: "
        "{executable: /path/to/vllm}}.",
        "placement.server_urls: http://node01:8000/v1, http://node02:8000/v1 and 1 more are on "
        "hosts that train (train). If a server holds devices of the training, stop it before that "
        "stage (run --until STAGE ends a run there), or have the stages start and stop their "
        "servers (placement.sampling, judging, scoring).",
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


def test_what_can_be_known_only_at_the_start_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setattr("pcl_reasoner.preflight.machines._has_npu", lambda: False)
    assert verdict("am_thinking_v1", "atlas_910c_rl").errors == []
    assert verdict(
        "am_thinking_v1",
        "atlas_910c_rl",
        here=True,
        to_run={"am_thinking_v1/revise", "am_thinking_v1/rl_1"},
    ).errors == [
        "https://api.openai.com/v1 needs a key, but OPENAI_API_KEY is not set: export "
        "OPENAI_API_KEY=KEY.",
        "stage am_thinking_v1/rl_1: trains on several hosts, whose processes wait for the rounds "
        "that this process makes. Give --start ssh.",
    ]
    assert verdict("v1_sft", "one_node_7b", here=True).errors == [
        "v1_sft/train and v1_sft/prove: device is Ascend, and this machine has no NPU (no "
        "/dev/davinci*, no npu-smi). Start the run on an Ascend host, name the hosts in the "
        "launch file and give --start ssh, or take a launch file for a CPU, e.g. --launch "
        "laptop. --until pack ends before it."
    ]
    assert verdict("v1_sft", "one_node_7b", until="pack", here=True).errors == []


def test_finished_stages_are_not_checked(tmp_path: Path) -> None:
    launch = own_launch(tmp_path, "atlas_910c_16x8", sampling=None, judge_urls=None)
    later = {"v15_opg/train", "v15_opg/export"}
    assert verdict("v15_opg", launch, to_run=later).errors == []
    assert len(verdict("v15_opg", launch, to_run={*later, "v15_opg/grade"}).errors) == 1


def test_stages_after_until_are_not_checked(tmp_path: Path) -> None:
    launch = own_launch(tmp_path, "atlas_910c_16x8", sampling=None)
    wrong = ("pack.seq_length=16384", "train.loss=grpo")
    assert verdict("v15_opg", launch, *wrong, until="unique").errors == []


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


def test_every_rule_has_a_test() -> None:
    """A rule that these tests never break would be one that nobody has seen work."""
    text = Path(__file__).read_text(encoding="utf-8")
    assert len(RULES) == len({rule.check for rule in RULES.values()}) > 30
    assert all(rule.check.__doc__ for rule in RULES.values())
    assert text.count("def test_") > 15


def test_no_heavy_package_is_imported_to_refuse(tmp_path: Path) -> None:
    code = (
        "import sys; from pcl_reasoner.cli.main import main; "
        "assert main(['validate', 'v15_opg', 'grade.prompt=/none.txt', 'train.loss=grpo']) == 2; "
        "heavy = {'torch', 'mindspore', 'numpy', 'pyarrow', 'tokenizers', 'httpx', 'jinja2'}; "
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=files.PACKAGE.parent)


SHIPPED = [
    (recipe, launch.stem)
    for recipe in ("v1_sft", "v15_opg", "am_thinking_v1")
    for launch in sorted(files.shipped("launch").glob("*.yaml"))
]
UNTIL = {"atlas_910c_teacher": "sample_sft"}
"""The last stage of am_thinking_v1 that a launch file is for; rl needs hosts that only sample."""


@pytest.mark.parametrize(("recipe", "launch"), SHIPPED)
def test_shipped_recipes_are_right_with_shipped_launch_files(recipe: str, launch: str) -> None:
    until = None
    if recipe == "am_thinking_v1" and launch not in ("laptop", "two_hosts_cpu", "atlas_910c_rl"):
        until = UNTIL.get(launch, "export")
    found = verdict(recipe, launch, until=until)
    assert found.errors == []
    # In the twin for Slurm a person starts the servers, also on the hosts that train.
    urls = ("placement.server_urls: ", "placement.judge_urls: ")
    by_hand = [one for one in found.warnings if one.startswith(urls)]
    assert found.warnings == (by_hand if launch.endswith("_slurm") else [])
