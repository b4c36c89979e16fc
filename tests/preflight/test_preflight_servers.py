"""Mistakes in launch files: servers, their devices, ports and URLs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from preflight_helpers import own_launch, verdict

from pcl_reasoner.core.errors import InputError
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
            "node01:8000 is the port of placement.master_port (msrun's scheduler) and of "
            "placement.sampling. Choose another port for one of them, e.g. placement.sampling.port."
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


@pytest.mark.parametrize("case", LAUNCH_MISTAKES)
def test_a_launch_file(case: str, tmp_path: Path) -> None:
    recipe, launch, placement, said = LAUNCH_MISTAKES[case]
    assert verdict(recipe, own_launch(tmp_path, launch, **placement)).errors == said


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


def test_vllm_cpu_has_no_devices(tmp_path: Path) -> None:
    several = {"executable": "/venv/bin/python", "servers": 3, "devices": 8}
    launch = own_launch(tmp_path, "atlas_910c_16x8", sampling=several)
    assert verdict("v1_sft", launch).errors == []


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
        "servers: placement: {sampling: {executable: /path/to/vllm}}.",
    ]


def test_a_third_model_that_nobody_serves_is_told(tmp_path: Path) -> None:
    own = {"opinion_urls": None, "api_keys": None}
    launch = own_launch(tmp_path, "atlas_910c_rl", **own)
    found = verdict("am_thinking_v1", launch)
    assert found.errors == []
    assert found.warnings == [
        "stage am_thinking_v1/revise: no server of the third model. If a ground truth is disputed, "
        "the stage writes disputed.jsonl and stops. Set placement.opinion_urls in the launch file, "
        "give the stage recorded answers (input opinion), or set revise.opinion=none."
    ]
