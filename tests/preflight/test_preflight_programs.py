"""Programs of launch files that cannot be started as they are written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from preflight_helpers import own_launch, verdict

VLLM = {"executable": "/opt/vllm/bin/vllm", "devices": 8}
FOLDER = (
    "is relative to a working folder, which is another one on each host and in a container. Write "
    "the whole path, from /."
)
VISIBLE = "ASCEND_RT_VISIBLE_DEVICES"

MISTAKES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "a folder as vLLM": (
        {"sampling": VLLM | {"executable": "/opt/vllm/bin/"}},
        [
            "placement.sampling.executable: /opt/vllm/bin/ is a folder, expected a file. Write the "
            "whole path of the file."
        ],
    ),
    "relative paths": (
        {
            "set_env": "cann/set_env.sh",
            "training": {"executable": "venv/bin/python", "set_env": ["/a.sh", "nnal.sh"]},
            "sampling": VLLM | {"executable": "bin/vllm"},
        },
        [
            f"placement.set_env: cann/set_env.sh {FOLDER}",
            f"placement.training.set_env: nnal.sh {FOLDER}",
            f"placement.training.executable: venv/bin/python {FOLDER}",
            f"placement.sampling.executable: bin/vllm {FOLDER}",
        ],
    ),
    "an empty path": (
        {"sampling": VLLM | {"executable": ""}},
        [
            "placement.sampling.executable: '' is empty, expected the path of a file. Write it, or "
            "leave the key out."
        ],
    ),
    "hours where seconds are counted": (
        {"training": {"environment": {"HCCL_CONNECT_TIMEOUT": "2 h"}}},
        [
            "placement.training.environment.HCCL_CONNECT_TIMEOUT: must be a whole number of "
            "seconds, e.g. 7200, got '2 h'."
        ],
    ),
    "a home folder in a shell file": (
        {"per_host": {"node01": {"set_env": "~/set_env.sh"}}},
        [
            "placement.per_host.node01.set_env: ~/set_env.sh begins with ~, which the shell does "
            "not replace there. Write the whole path."
        ],
    ),
    "msrun instead of its Python": (
        {"training": {"executable": "/opt/mindspore/bin/msrun"}},
        [
            "placement.training.executable: /opt/mindspore/bin/msrun is not a Python, expected "
            "e.g. /opt/mindspore/bin/python."
        ],
    ),
    "options that are given already": (
        {"sampling": VLLM | {"arguments": ["--max_model_len=4096", "-tp", "8", "--port", "9"]}},
        [
            f"placement.sampling.arguments: {name} would replace what this package gives the "
            f"server, and the stages would not find what they ask. Remove it; {key} sets it."
            for name, key in (
                ("--max-model-len", "the stage's max_model_len"),
                ("-tp", "the key devices"),
                ("--port", "the key port"),
            )
        ],
    ),
    "two words as one": (
        {"sampling": VLLM | {"arguments": ["--seed 1"]}},
        [
            "placement.sampling.arguments: '--seed 1' is one word, which vLLM does not know. Write "
            "two: '--seed', '1'."
        ],
    ),
    "a share in percent": (
        {"sampling": VLLM | {"arguments": ["--gpu-memory-utilization", "90"]}},
        [
            "placement.sampling.arguments: --gpu-memory-utilization is a share of the memory, over "
            "0 and at most 1, got '90'."
        ],
    ),
    "devices that are no numbers": (
        {"env": {VISIBLE: "all"}, "devices_per_host": 8, "sampling": None, "server_urls": []},
        [
            f"placement.env.{VISIBLE}: expected numbers such as 0,1,2,3, got 'all'.",
            f"stage v1_sft/train: placement.env.{VISIBLE} lists 1 devices, and devices_per_host is "
            "8, which is the number of processes on a host. List 8, or lower devices_per_host.",
        ],
    ),
    "a device twice": (
        {"training": {"environment": {VISIBLE: "0,1,2,3,4,5,6,6"}}},
        [
            f"placement.training.environment.{VISIBLE}: names a device twice: 0,1,2,3,4,5,6,6. "
            "Name each once."
        ],
    ),
    "one host in two spellings": (
        {"hosts": [*(f"node{n:02}" for n in range(1, 16)), "Node01"]},
        [
            "placement.hosts: node01 and Node01 are one host, because capital letters do not count "
            "in names of machines. Name every host once."
        ],
    ),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_launch_file(case: str, tmp_path: Path) -> None:
    placement, said = MISTAKES[case]
    launch = own_launch(tmp_path, "atlas_910c_16x8", **placement)
    until = "train" if "server_urls" in placement else None
    assert verdict("v1_sft", launch, until=until).errors == said


def test_what_is_right_on_one_machine_or_in_path(tmp_path: Path) -> None:
    own = {"executable": "venv/bin/python", "arguments": ['--hf-overrides={"a": 1}', "--seed=1"]}
    launch = own_launch(tmp_path, "one_node_7b", sampling=own, set_env="cann/set_env.sh")
    found = verdict("v1_sft", launch).errors
    assert not [one for one in found if "executable" in one or "arguments" in one]
    launch = own_launch(tmp_path, "atlas_910c_16x8", sampling={"executable": "vllm", "devices": 8})
    assert verdict("v1_sft", launch).errors == []


def test_listed_devices_of_servers_are_not_those_of_a_training(tmp_path: Path) -> None:
    own = VLLM | {"environment": {VISIBLE: "0,1,2,3,4,5,6,7"}}
    launch = own_launch(tmp_path, "atlas_910c_16x16", sampling=own | {"servers": 1})
    assert verdict("v15_opg", launch).errors == []


@pytest.mark.parametrize(
    ("mounts", "options", "refused"),
    [
        ([], [], True),
        (["/data"], [], True),
        (["/models"], [], False),
        (["/mnt/models:/models:ro"], [], False),
        (["/models:/inside"], [], True),
        ([], ["--volume=/models:/models"], False),
    ],
)
def test_a_container_needs_the_folder_of_the_weights(
    mounts: list[str], options: list[str], refused: bool, tmp_path: Path
) -> None:
    container = {"image": "i", "mounts": mounts, "options": options}
    launch = own_launch(tmp_path, "atlas_910c_16x8", training={"container": container})
    source = "sources.policy.path=/models/Qwen2.5-32B"
    found = verdict("v1_sft", launch, source, until="train").errors
    assert found == (
        [
            "stage v1_sft/train: placement.training runs in a container, and no mount of it has "
            "the folder of /models/Qwen2.5-32B (source policy). Add /models/Qwen2.5-32B to "
            "training.container.mounts."
        ]
        if refused
        else []
    )


def test_a_container_without_mounts_has_no_model_of_a_stage(tmp_path: Path) -> None:
    own = VLLM | {"container": {"image": "i"}}
    launch = own_launch(tmp_path, "atlas_910c_16x8", sampling=own)
    said = verdict("v1_sft", launch).errors
    assert [one.split(":")[0] for one in said] == ["stage v1_sft/prove", "stage v1_sft/evaluate"]
    assert said[0].endswith(
        "no mount of it has the folder of its model, export. Add that folder, e.g. the folder of "
        "the runs, to sampling.container.mounts."
    )
