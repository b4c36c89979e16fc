"""Servers that a person starts: their ports, their weights, and the names that messages use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from preflight_helpers import own_launch, verdict

from pcl_reasoner.core import files
from pcl_reasoner.core.files import yaml_text
from pcl_reasoner.core.yaml_file import read_yaml

SLURM = "atlas_910c_16x16_slurm"
VLLM = {"executable": "/opt/vllm/bin/vllm", "servers": 2, "devices": 8, "by_hand": True}

PORTS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "the scheduler and the policy's second server": (
        {"master_port": 8001},
        [
            "node01:8001 is the port of placement.master_port (msrun's scheduler) and of "
            "placement.sampling. Choose another port for one of them, e.g. placement.sampling.port."
        ],
    ),
    "the scheduler and the judge": (
        {"master_port": 8100},
        [
            "node01:8100 is the port of placement.master_port (msrun's scheduler) and of "
            "placement.judging. Choose another port for one of them, e.g. placement.judging.port."
        ],
    ),
    "Ray and the policy": (
        {"data": {"engine": "ray", "address": "node02:8001"}},
        [
            "node02:8001 is the port of placement.data.address (Ray) and of placement.sampling. "
            "Choose another port for one of them, e.g. placement.sampling.port."
        ],
    ),
    "Ray and the scheduler": (
        {"data": {"engine": "ray", "address": "ray://node01:8118"}},
        [
            "node01:8118 is the port of placement.data.address (Ray) and of placement.master_port "
            "(msrun's scheduler). Choose another port for one of them."
        ],
    ),
    "the judge at a URL and the policy": (
        {"judging": None, "judge_urls": ["http://node16:8001/v1"]},
        [
            "node16:8001 is the port of placement.sampling and of placement.judge_urls. Choose "
            "another port for one of them, e.g. placement.sampling.port."
        ],
    ),
    "other hosts and other ports": (
        {"judging": None, "judge_urls": ["http://node16:8002/v1", "http://node17:8001/v1"]},
        [],
    ),
}


@pytest.mark.parametrize("case", PORTS)
def test_a_port_that_is_taken_twice(case: str, tmp_path: Path) -> None:
    placement, said = PORTS[case]
    assert verdict("v15_opg", own_launch(tmp_path, SLURM, **placement)).errors == said


def test_a_server_that_a_stage_starts_here_takes_a_free_port(tmp_path: Path) -> None:
    own = {"hosts": ["localhost"], "master_port": 8000, "by_hand": False}
    serving = {key: value for key, value in VLLM.items() if key != "by_hand"}
    launch = own_launch(tmp_path, "one_node_7b", sampling=serving, master_port=own["master_port"])
    assert not [one for one in verdict("v15_opg", launch).errors if "is the port" in one]


def test_the_judges_weights_are_a_source(tmp_path: Path) -> None:
    launch = read_yaml(files.find(SLURM, "launch"))
    del launch["sources"]
    (tmp_path / "own.yaml").write_text(yaml_text(launch))
    assert verdict("v15_opg", str(tmp_path / "own.yaml")).errors == [
        "stage v15_opg/grade: the launch file's placement.judging has a person start the judge and "
        "needs its weights: give the stage the input judge, e.g. inputs: {judge: SOURCE} with "
        "sources: {SOURCE: {path: FOLDER, kind: model}}."
    ]


def test_messages_name_what_the_file_has() -> None:
    found = verdict("v15_opg", SLURM)
    assert found.errors == []
    stopped = (
        "hosts that train (train). If a server holds devices of the training, stop it before that "
        "stage (run --until STAGE ends a run there), or have the stages start and stop their "
        "servers: remove placement.{}.by_hand."
    )
    assert found.warnings == [
        "placement.sampling: several models are asked of the same servers (sample, "
        "evaluate_before: 'policy' with the weights of policy; prove, evaluate_after: 'policy' "
        "with the weights of export). Exchange the servers between these stages (run --until STAGE "
        "ends a run there), or have the stages start them: remove placement.sampling.by_hand.",
        "placement.sampling: http://node01:8000/v1, http://node01:8001/v1 and 30 more are on "
        + stopped.format("sampling"),
        "placement.judging: http://node01:8100/v1, http://node01:8101/v1 and 30 more are on "
        + stopped.format("judging"),
    ]
    assert not [one for one in found.warnings if "_urls" in one]


def test_one_url_of_two_kinds_is_named_by_its_keys(tmp_path: Path) -> None:
    launch = own_launch(tmp_path, SLURM, judging=None, judge_urls=["http://node01:8000/v1"])
    said = verdict("v15_opg", launch, "grade.judge_model=policy").errors
    assert said[-1].startswith(
        "http://node01:8000/v1 is in placement.sampling and placement.judge_urls, and both"
    )


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://n:8000", "has no path, and requests would go to http://n:8000/models and"),
        ("http://n:8000/", "has no path, and requests would go to http://n:8000/models and"),
        ("http://n:8000/v1/chat/completions", "ends with the page completions, and requests"),
        ("http://n:8000/v1/models/", "ends with the page models, and requests would go to"),
    ],
)
def test_a_url_that_is_not_a_base(url: str, said: str, tmp_path: Path) -> None:
    launch = own_launch(tmp_path, "atlas_910c_16x8", judge_urls=[url])
    [error] = verdict("v15_opg", launch).errors
    assert error.startswith(f"placement.judge_urls: {url} {said}")
    assert error.endswith("Write the base URL of the server, e.g. http://n:8000/v1.")
    for right in ("http://n:8000/v1", "http://n/openai/deployments/x"):
        launch = own_launch(tmp_path, "atlas_910c_16x8", judge_urls=[right])
        assert verdict("v15_opg", launch).errors == []
