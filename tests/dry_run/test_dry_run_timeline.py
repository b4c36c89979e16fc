"""The printed commands are those that run, in their order, as the processes themselves say."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from sample_helpers import model_folder, problems_folder
from servers import all_gone, serving

from pcl_reasoner.core.files import yaml_text
from pcl_reasoner.dry_run.timeline import timeline
from pcl_reasoner.runner.plan import make_plan
from pcl_reasoner.runner.recipe import load_recipe

HELPERS = Path(__file__).parent.parent / "helpers"
HOSTS = ["127.0.0.1", "127.0.0.2"]
SAMPLING = "n: 2, max_new_tokens: 40, max_model_len: 200, top_k: 0, concurrency: 2"
RECIPE = f"""
name: swaps
sources:
  policy: {{path: PLACE/policy, kind: model}}
  judge: {{path: PLACE/judged, kind: model}}
  problems: {{path: PLACE/problems}}
  exam: {{path: PLACE/exam.jsonl}}
stages:
  sample: {{{SAMPLING}, inputs: {{problems: problems}}}}
  grade: {{method: judge, judge_model: the-judge, judge_max_new_tokens: 20,
          judge_max_model_len: 400, inputs: {{problems: problems}}}}
  before: {{stage: evaluate, {SAMPLING}, inputs: {{model: policy, benchmark: exam}}}}
"""


def programs(folder: Path) -> dict[str, Any]:
    """``sampling`` and ``judging`` of a launch file whose servers write down how they start."""
    found = {}
    for key, text in (("sampling", "</think>\\boxed{{8}}"), ("judging", "\\boxed{{1}}")):
        place = folder / key
        place.mkdir()
        told = {"STAND_IN_TEXT": text, "STARTED": str(folder / "started")}
        one: dict[str, Any] = serving(place, environment=told)["sampling"]
        program = Path(one["executable"])
        record = (
            "import json, os, sys; open(os.environ['STARTED'], 'a').write(json.dumps("
            "[os.environ['STAND_IN_HOST'], os.environ['CANN'], *sys.argv[1:]]) + chr(10))"
        )
        first, *rest = program.read_text().splitlines()
        lines = [first, f'{sys.executable} -c "{record}" "$0" "$@"', *rest]
        program.write_text("\n".join(lines) + "\n")
        cann = folder / f"{key}.cann"
        cann.write_text(f"export CANN={key}\n")
        found[key] = {**one, "set_env": str(cann)}
    return found


@pytest.fixture
def launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A launch file with two hosts, which are this machine, reached by a stand-in for ssh."""
    where = tmp_path / "path"
    where.mkdir()
    (where / "ssh").write_text((HELPERS / "stand_in_ssh.sh").read_text())
    (where / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{where}:{os.environ['PATH']}")
    monkeypatch.setenv("DOWN", str(tmp_path))
    per_host = {host: {"env": {"STAND_IN_HOST": host}} for host in HOSTS}
    placement = {"hosts": HOSTS, "per_host": per_host, "server_port": 8431, **programs(tmp_path)}
    texts = {"name": "x", "title": "x", "profile": "paper", "verified": "No."}
    hashed = {"sample": {"engine": "server"}, "evaluate": {"engine": "server"}}
    file = tmp_path / "launch.yaml"
    file.write_text(yaml_text({**texts, "hashed": hashed, "placement": placement}))
    return file


def test_the_dry_runs_commands_are_those_that_run_in_their_order(
    launch: Path, tmp_path: Path
) -> None:
    problems_folder(tmp_path / "problems")
    for name in ("policy", "judged"):
        model_folder(tmp_path / name)
    (tmp_path / "exam.jsonl").write_text('{"id": "1", "problem": "7 + 1?", "answer": "8"}\n')
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(RECIPE.replace("PLACE", str(tmp_path)))
    plan = make_plan(load_recipe(str(recipe), str(launch)), tmp_path / "runs")
    planned = []
    for line in timeline(plan):
        words = shlex.split(line.command.rpartition(" && exec ")[2])
        planned.append((line.stage, [line.host, *words]))
    command = [
        sys.executable,
        "-m",
        "pcl_reasoner.cli",
        "run",
        str(recipe),
        "--launch",
        str(launch),
    ]
    done = subprocess.run(
        [*command, "--start", "ssh", "--runs", str(tmp_path / "runs")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = (tmp_path / "started").read_text().splitlines()
    started = [(host, cann, words) for host, cann, *words in map(json.loads, lines)]
    assert [cann for _, cann, _ in started] == [
        *("sampling", "sampling", "judging", "judging", "sampling", "sampling")
    ]
    # A stage starts its servers on all hosts at a time: within a stage any order is right.
    expected = [
        sorted(words for _, words in group) for _, group in groupby(planned, lambda x: x[0])
    ]
    # The second name of a server has a hash of its weights, which need not be here yet.
    real = [
        [host, *(w for w in words if "policy@" not in w and "judge@" not in w)]
        for host, _, words in started
    ]
    assert [sorted(real[first : first + 2]) for first in (0, 2, 4)] == expected
    assert [stage for stage, _ in groupby(planned, lambda x: x[0])] == [
        *("swaps/sample", "swaps/grade", "swaps/before")
    ]
    assert all(all_gone(tmp_path / key) for key in ("sampling", "judging"))


def test_all_of_v15_on_16_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """5 stages x 16 hosts x 2 servers, and 16 hosts that train, between judging and evaluation."""
    monkeypatch.chdir(tmp_path)
    plan = make_plan(load_recipe("v15_opg", "atlas_910c_16x16"), tmp_path / "runs")
    lines = list(timeline(plan))
    stages = [(stage, len(list(group))) for stage, group in groupby(lines, lambda line: line.stage)]
    assert stages == [
        ("v15_opg/sample", 32),
        ("v15_opg/grade", 32),
        ("v15_opg/train", 16),
        ("v15_opg/evaluate_before", 32),
        ("v15_opg/prove", 32),
        ("v15_opg/evaluate_after", 32),
    ]
    assert {line.host for line in lines} == {f"node{number:02d}" for number in range(1, 17)}
    train = [line.command for line in lines if line.stage == "v15_opg/train"]
    assert all("--worker_num=256 --local_worker_num=16 " in line for line in train)
    assert all("nnal" not in line and "/opt/mindspore/bin:" in line for line in train)
    served = [line.command for line in lines if line.stage != "v15_opg/train"]
    assert all("source /usr/local/Ascend/nnal/atb/set_env.sh && " in line for line in served)
    devices = {line.partition("ASCEND_RT_VISIBLE_DEVICES=")[2].split(" ")[0] for line in served}
    assert devices == {"0,1,2,3,4,5,6,7", "8,9,10,11,12,13,14,15"}
    slurm = make_plan(load_recipe("v15_opg", "atlas_910c_16x16_slurm"), tmp_path / "runs")
    twin = [(line.stage, line.host) for line in timeline(slurm)]
    assert twin == [(line.stage, line.host) for line in lines]
