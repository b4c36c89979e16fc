"""The published run is not started here; all that would start it is written. About 3 s."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from end_to_end_helpers import call


def test_the_papers_run_is_written_out_for_every_host(tmp_path: Path) -> None:
    words = ["run", "v15_opg", "--launch", "atlas_910c_16x8", "--dry-run"]
    answer = call(*words, cwd=tmp_path)
    assert (answer.returncode, answer.stderr) == (0, "")
    lines = answer.stdout.splitlines()
    assert lines[0].startswith("ATLAS_910C_16X8")
    commands = answer.stdout.partition("commands, in the order of the run:")[2]
    hosts = re.findall(r"^  on (node\d\d):$", commands, re.M)
    # Each stage with servers or training names every host, in the launch file's order.
    assert hosts[:16] == [f"node{number:02d}" for number in range(1, 17)]
    assert len(hosts) % 16 == 0 and hosts == hosts[:16] * (len(hosts) // 16)
    trainings = [line for line in lines if "--worker_num=128" in line]
    ranks = [re.search(r"--node_rank=(\d+)", line) for line in trainings]
    assert [int(rank.group(1)) for rank in ranks if rank] == list(range(16))
    assert all("--local_worker_num=8" in line for line in trainings)
    for name in ("aime24", "aime25"):
        assert f"missing: source {name}: " in answer.stdout


def test_what_is_written_has_the_papers_numbers(tmp_path: Path) -> None:
    call("run", "v15_opg", "--launch", "atlas_910c_16x8", "--dry-run", cwd=tmp_path)
    folder = tmp_path / "runs" / "v15_opg" / "dry_run"
    recipe = yaml.safe_load((folder / "recipe.resolved.yaml").read_text())
    assert recipe["profile"] == "paper"
    assert recipe["stages"]["sample"]["n"] == 8
    assert recipe["stages"]["train"]["global_batch_size"] == 128
    training = yaml.safe_load((folder / "mindformers.train.yaml").read_text())
    parallel = training["parallel_config"]
    layout = [parallel[f"{kind}"] for kind in ("data_parallel", "model_parallel", "pipeline_stage")]
    assert layout == [4, 8, 4]
    assert training["context"]["device_target"] == "Ascend"
    assert training["model"]["model_config"]["num_layers"] == 64
    # Nothing was run, and nothing but these files and the hosts' scripts was made.
    scripts = folder.with_name("launch")
    kept = (folder, *scripts.iterdir())
    files = [path for path in (tmp_path / "runs").rglob("*") if path.is_file()]
    made = [path for path in files if path.name != ".hashes.json"]
    assert {path.parent for path in made} == set(kept)
    assert {path.suffix for path in scripts.rglob("*") if path.is_file()} == {".sh", ".sbatch"}


def test_it_is_validated_without_any_data(tmp_path: Path) -> None:
    for recipe, launch in (("v15_opg", "atlas_910c_16x8"), ("v1_sft", "v1_dp8_tp8_pp2")):
        answer = call("validate", recipe, "--launch", launch, cwd=tmp_path)
        assert (answer.returncode, answer.stderr) == (0, "")
    assert list(tmp_path.iterdir()) == []
