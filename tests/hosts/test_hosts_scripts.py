"""Scripts of every host, run for real; what stands for msrun writes down what it was given."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from preflight_helpers import own_launch

from pcl_reasoner.cli.main import cli
from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.files import find, yaml_text
from pcl_reasoner.core.serving import GUARD_FOLDER
from pcl_reasoner.core.stage import ServerNeeds
from pcl_reasoner.core.yaml_file import read_yaml
from pcl_reasoner.grade.config import GradeConfig
from pcl_reasoner.hosts.scripts import Scripts, write_ray_scripts, write_scripts
from pcl_reasoner.runner.plan import PlannedStage, make_plan
from pcl_reasoner.runner.recipe import load_recipe
from pcl_reasoner.serving.serve_command import QUIET

SAY = f"""#!{sys.executable}
import json, os, sys
said = {{"name": os.path.basename(sys.argv[0]), "words": sys.argv[1:], "cwd": os.getcwd(),
        "env": dict(os.environ)}}
with open(os.environ["SAID"], "a") as file:
    file.write(json.dumps(said) + "\\n")
"""
"""Stands for msrun, vllm and ray."""

SRUN = """#!/usr/bin/env bash
# One task a node, as Slurm does; names of nodes are n0, n1, ...
shift  # --kill-on-bad-exit=1
for node in 0 1 2; do
  SLURM_NODEID=$node SLURMD_NODENAME=n$node "$@"
done
"""


def planned_stage(folder: Path, stage: str = "train", **placement: Any) -> PlannedStage:
    """A stage of V1 on three hosts of eight devices, with a space in every path."""
    launch = read_yaml(find("v1_dp8_tp8_pp2", "launch"))
    launch["hashed"]["train"] |= {"data_parallel": 8, "model_parallel": 1, "pipeline_stage": 3}
    launch["hashed"]["train"] |= {"recompute": True}
    by_hand = {"set_env": None, "sampling": None}
    launch["placement"] |= {"hosts": ["a1", "b2", "c3"], **by_hand, **placement}
    file = folder / "three hosts.yaml"
    folder.mkdir(exist_ok=True)
    file.write_text(yaml_text(launch))
    sizes = ("train.model.num_layers=63", "train.global_batch_size=128")
    recipe = load_recipe("v1_sft", str(file), overrides=sizes)
    return make_plan(recipe, folder / "all runs", until=stage).stages[-1]


def programs(folder: Path, **texts: str) -> Path:
    """A folder for PATH."""
    found = folder / "bin"
    found.mkdir(exist_ok=True)
    for name, text in texts.items():
        (found / name).write_text(text)
        (found / name).chmod(0o755)
    return found


def call(script: Path, path: Path, said: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a script with nothing of this process's own environment."""
    return subprocess.run(
        ["bash", str(script)],
        env={"PATH": f"{path}:/usr/bin:/bin", "SAID": str(said), **env},
        capture_output=True,
        text=True,
    )


def said_in(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def with_configuration(planned: PlannedStage) -> PlannedStage:
    planned.partial.mkdir(parents=True)
    (planned.partial / "mindformers.yaml").write_text("run_mode: finetune\n")
    return planned


def test_what_msrun_is_given_on_the_second_of_three_hosts(tmp_path: Path) -> None:
    """3 hosts x 8 devices = DP 8 x PP 3 = 24 workers; b2 has place 1."""
    env = tmp_path / "set env.sh"
    # As CANN's own file, it reads a variable that need not be set.
    env.write_text('export FROM_FILE="seen$NOT_SET_ANYWHERE"\n')
    planned = with_configuration(
        planned_stage(
            tmp_path / "a b",
            set_env=str(env),
            env={"WORDS": "it's $HOME", "COMMON": "1"},
            per_host={"b2": {"env": {"COMMON": "2"}}},
        )
    )
    [scripts] = write_scripts(planned)
    assert scripts.folder == planned.folder.parent / "launch" / "train"
    names = [file.name for file in scripts.files[:3]]
    assert names == ["host_00_a1.sh", "host_01_b2.sh", "host_02_c3.sh"]
    said = tmp_path / "said"
    answer = call(scripts.files[1], programs(tmp_path, msrun=SAY), said)
    assert (answer.returncode, answer.stderr) == (0, "")
    [given] = said_in(said)
    assert given["words"] == [
        "--worker_num=24",
        "--local_worker_num=8",
        "--master_addr=a1",
        "--master_port=8118",
        "--node_rank=1",
        "--log_dir=output/msrun_log",
        "--join=True",
        "--cluster_time_out=1200",
        "python",
        "-m",
        "pcl_reasoner.worker",
        str(planned.partial / "mindformers.yaml"),
    ]
    assert given["cwd"] == str(planned.partial)
    own = {name: given["env"].get(name) for name in ("WORDS", "COMMON", "FROM_FILE")}
    assert own == {"WORDS": "it's $HOME", "COMMON": "2", "FROM_FILE": "seen"}


def test_nothing_is_started_before_the_configuration_is_written(tmp_path: Path) -> None:
    planned = planned_stage(tmp_path / "a b")
    said = tmp_path / "said"
    answer = call(write_scripts(planned)[0].files[0], programs(tmp_path, msrun=SAY), said)
    assert answer.returncode == 1
    assert (
        f"{planned.partial}/mindformers.yaml is not there: pclr-ms run writes it" in answer.stderr
    )
    assert not said.exists()


def test_a_host_without_msrun_says_so(tmp_path: Path) -> None:
    planned = with_configuration(planned_stage(tmp_path / "a b"))
    answer = call(write_scripts(planned)[0].files[0], programs(tmp_path), tmp_path / "said")
    assert answer.returncode == 1
    assert answer.stderr.startswith("msrun is not on PATH: ")


def test_slurm_gives_rank_and_master(tmp_path: Path) -> None:
    planned = with_configuration(
        planned_stage(tmp_path / "a b", env={"ALL": "x y"}, per_host={"b2": {"env": {"ALL": "z"}}})
    )
    job = write_scripts(planned)[0].folder / "job.sbatch"
    scontrol = '#!/bin/sh\n[ "$*" = "show hostnames n[0-2]" ] && printf "n0\\nn1\\nn2\\n"\n'
    # What Slurm calls n1 is b2 for the launch file only where the names are the same.
    srun = SRUN.replace(
        "SLURMD_NODENAME=n$node", "SLURMD_NODENAME=$(echo a1 b2 c3 | cut -d' ' -f$((node+1)))"
    )
    path = programs(tmp_path, msrun=SAY, scontrol=scontrol, srun=srun)
    said = tmp_path / "said"
    answer = call(job, path, said, SLURM_JOB_NODELIST="n[0-2]")
    assert (answer.returncode, answer.stderr) == (0, "")
    given = said_in(said)
    assert [one["words"][4] for one in given] == [f"--node_rank={rank}" for rank in range(3)]
    assert {one["words"][2] for one in given} == {"--master_addr=n0"}
    assert {one["words"][0] for one in given} == {"--worker_num=24"}
    assert [one["env"]["ALL"] for one in given] == ["x y", "z", "x y"]
    assert {one["cwd"] for one in given} == {str(planned.partial)}


def test_the_job_asks_for_the_launch_files_hosts_and_guesses_no_device_name(
    tmp_path: Path,
) -> None:
    text = (write_scripts(planned_stage(tmp_path / "a b"))[0].folder / "job.sbatch").read_text()
    asked = [line.split(" ", 1)[1] for line in text.splitlines() if line.startswith("#SBATCH")]
    expected = ["--job-name=v1_sft-train", "--nodes=3", "--ntasks-per-node=1", "--exclusive"]
    # sbatch's page: an exclusive job is only allocated as much memory as it requested.
    assert asked == [*expected, "--mem=0"]
    # Slurm stops reading options at the first command.
    assert text.index("##SBATCH --gres") < text.index("set -euo pipefail")


def test_a_server_of_the_trained_model_on_every_host(tmp_path: Path) -> None:
    planned = planned_stage(tmp_path / "a b", "evaluate")
    [scripts], said = write_scripts(planned), tmp_path / "said"
    path = programs(tmp_path, vllm=SAY)
    weights = planned.inputs["model"].path
    before = call(scripts.files[2], path, said)
    assert before.returncode == 1 and f"{weights}: no weights yet" in before.stderr
    weights.mkdir(parents=True)
    (weights / "config.json").write_text("{}")
    assert call(scripts.files[2], path, said).returncode == 0
    [given] = said_in(said)
    assert given["words"][:2] == ["serve", str(weights)]
    assert given["words"][-6:] == [
        *["--generation-config", "vllm"],
        *["--load-format", "safetensors"],
        *["--tensor-parallel-size", "8"],
    ]


REWARDED = """
name: rewarded
sources:
  problems: {path: PLACE}
  responses: {path: PLACE}
  model: {path: "PLACE/model"}
stages:
  grade: {inputs: {problems: problems, responses: responses, reward_model: model}}
"""


def test_a_reward_models_server_is_guarded(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(REWARDED.replace("PLACE", str(tmp_path)))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    recipe = load_recipe(str(tmp_path / "recipe.yaml"), "atlas_910c_16x8")
    [grade] = make_plan(recipe, tmp_path / "all runs").stages
    [scripts] = write_scripts(grade)
    assert scripts.folder == grade.folder.parent / "launch" / "grade.scoring"
    text = scripts.files[1].read_text()
    assert "http://HOST:8200/v1: that belongs into placement.score_urls." in text
    (tmp_path / "set_env.sh").write_text("export PYTHONPATH=/of/cann\n")
    own = text.replace("/usr/local/Ascend/ascend-toolkit/set_env.sh", str(tmp_path / "set_env.sh"))
    scripts.files[1].write_text(own)
    path, said = programs(tmp_path, vllm=SAY), tmp_path / "said"
    answer = call(scripts.files[1], path, said)
    assert (answer.returncode, answer.stderr) == (0, "")
    [given] = said_in(said)
    assert given["env"]["PYTHONPATH"] == f"{GUARD_FOLDER}:/of/cann"
    assert given["words"][-4:] == ["--runner", "pooling", "--middleware", "pclr_guard.Guard"]


def test_a_server_whose_weights_can_be_replaced_starts_only_with_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs = ServerNeeds("scoring", "reward_model", "policy", 512, replaceable=True)
    monkeypatch.setattr(GradeConfig, "servers", lambda self, roles=(): [needs])
    (tmp_path / "recipe.yaml").write_text(REWARDED.replace("PLACE", str(tmp_path)))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    recipe = load_recipe(str(tmp_path / "recipe.yaml"), "atlas_910c_16x8")
    [scripts] = write_scripts(make_plan(recipe, tmp_path / "runs").stages[0])
    set_env = "/usr/local/Ascend/ascend-toolkit/set_env.sh"
    (tmp_path / "set_env.sh").touch()
    script = scripts.files[1]
    script.write_text(script.read_text().replace(set_env, str(tmp_path / "set_env.sh")))
    path, said = programs(tmp_path, vllm=SAY), tmp_path / "said"
    answer = call(script, path, said)
    assert answer.returncode == 1
    assert "VLLM_API_KEY is not set. Without a key, everyone who" in answer.stderr
    script.write_text(script.read_text().replace("set -euo", "export VLLM_API_KEY=a; set -euo"))
    assert call(script, path, said).returncode == 0
    [given] = said_in(said)
    assert given["env"]["VLLM_SERVER_DEV_MODE"] == "1"
    assert given["env"]["PYTHONPATH"] == str(GUARD_FOLDER)
    assert given["words"][-2:] == ["--middleware", "pclr_guard.Guard"]
    assert "pooling" not in given["words"]


def test_hosts_that_are_no_longer_named_lose_their_scripts(tmp_path: Path) -> None:
    folder = write_scripts(planned_stage(tmp_path / "a b"))[0].folder
    (folder / "slurm-17.out").write_text("kept")
    write_scripts(planned_stage(tmp_path / "a b", hosts=["a1", "d4", "c3"]))
    hosts = sorted(path.name for path in folder.glob("host_*"))
    assert hosts == ["host_00_a1.sh", "host_01_d4.sh", "host_02_c3.sh"]
    assert (folder / "slurm-17.out").read_text() == "kept"
    assert [path for path in folder.iterdir() if path.name.startswith(".")] == []


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    planned = planned_stage(tmp_path / "a b")
    planned.folder.parent.mkdir(parents=True)
    (planned.folder.parent / "launch").write_text("a file in the way")
    with pytest.raises(StageError, match=r"launch/train: cannot be written .* --runs"):
        write_scripts(planned)


def ray_scripts(tmp_path: Path, address: str | None) -> Scripts | None:
    planned = planned_stage(tmp_path / "a b", data={"engine": "ray", "address": address})
    return write_ray_scripts(planned.recipe.launch.placement, planned.folder.parent)


@pytest.mark.parametrize(
    ("address", "head", "worker"),
    [
        ("auto", "start --head --port=6379 --block", "start --address=a1:6379 --block"),
        (
            "ray://b2:10002",
            "start --head --port=6379 --ray-client-server-port=10002 --block",
            "start --address=b2:6379 --block",
        ),
        ("c3:7000", "start --head --port=7000 --block", "start --address=c3:7000 --block"),
    ],
)
def test_ray_is_started_head_first(tmp_path: Path, address: str, head: str, worker: str) -> None:
    scripts = ray_scripts(tmp_path, address)
    assert scripts is not None and scripts.folder.name == "_ray"
    path, said = programs(tmp_path, ray=SAY), tmp_path / "said"
    for file in scripts.files[:3]:
        assert call(file, path, said).returncode == 0
    assert [one["words"] for one in said_in(said)] == [head.split(), *[worker.split()] * 2]
    assert {one["env"]["RAY_USAGE_STATS_ENABLED"] for one in said_in(said)} == {"0"}


def test_ray_under_slurm_has_its_head_on_the_first_host(tmp_path: Path) -> None:
    scripts = ray_scripts(tmp_path, "auto")
    assert scripts is not None
    said = tmp_path / "said"
    scontrol = '#!/bin/sh\nprintf "n0\\nn1\\nn2\\n"\n'
    path = programs(tmp_path, ray=SAY, scontrol=scontrol, srun=SRUN)
    assert call(scripts.folder / "job.sbatch", path, said, SLURM_JOB_NODELIST="n").returncode == 0
    first, *others = [one["words"] for one in said_in(said)]
    assert first == ["start", "--head", "--port=6379", "--block"]
    assert others == [["start", "--address=n0:6379", "--block"]] * 2


@pytest.mark.parametrize("address", [None, "ray://elsewhere:10001"])
def test_a_cluster_of_others_or_of_one_machine_needs_no_scripts(
    tmp_path: Path, address: str | None
) -> None:
    assert ray_scripts(tmp_path, address) is None


def test_a_laptop_needs_none(tmp_path: Path) -> None:
    plan = make_plan(load_recipe("v15_opg", "laptop"), tmp_path)
    assert [write_scripts(planned) for planned in plan.stages] == [[]] * len(plan.stages)


@pytest.mark.parametrize(
    ("recipe", "launch"), [("v1_sft", "v1_dp8_tp8_pp2"), ("v15_opg", "atlas_910c_16x8")]
)
def test_a_dry_run_writes_scripts_that_bash_can_read(
    tmp_path: Path, recipe: str, launch: str
) -> None:
    runs, launch = tmp_path / "all runs", own_launch(tmp_path, launch, sampling=None)
    words = ["run", recipe, "--launch", launch, "--dry-run", "--runs", str(runs)]
    answer = CliRunner().invoke(cli, words)
    assert answer.exit_code == 0, answer.output
    written = sorted((runs / recipe / "launch").rglob("*.*"))
    files = [file for file in written if file.is_file()]
    stages = {file.parent.name for file in files}
    served = {"prove", "evaluate"}
    if recipe != "v1_sft":
        served = {"sample", "evaluate_before", "prove", "evaluate_after"}
    assert stages == {"train", *served}
    assert len(files) == len(stages) * (16 + 2)
    for file in files:
        checked = subprocess.run(["bash", "-n", str(file)], capture_output=True, text=True)
        assert (checked.returncode, checked.stderr) == (0, ""), file
        assert os.access(file, os.X_OK)
    job = shlex.quote(str(runs / recipe / "launch" / "train" / "job.sbatch"))
    assert f"start with: sbatch {job}" in answer.output


SRUN_SERVERS = """#!/usr/bin/env bash
# Two tasks on each of three nodes, all at once; the exit code is the highest of them.
[ "$1 $2" = "--kill-on-bad-exit=0 --wait=0" ] || exit 99
shift 2
for node in 0 1 2; do
  for task in 0 1; do
    SLURM_NODEID=$node SLURM_LOCALID=$task SLURMD_NODENAME=n$node "$@" &
    tasks="$tasks $!"
  done
done
code=0
for task in $tasks; do wait $task || code=$?; done
exit $code
"""
DIES = SAY.replace(
    "said = {",
    'if os.environ["SLURM_NODEID"] + os.environ["SLURM_LOCALID"] == "11":\n'
    '    sys.exit(7 if not os.path.exists(os.environ["SAID"] + ".once") else 0)\nsaid = {',
)


def test_one_dead_server_of_a_slurm_job_is_started_again_and_the_others_go_on(
    tmp_path: Path,
) -> None:
    cann = tmp_path / "cann"
    cann.write_text('export CANN="9.1.0$NOT_SET_ANYWHERE"\n')
    serving = {
        "executable": str(tmp_path / "bin" / "vllm"),
        "by_hand": True,
        "servers": 2,
        "devices": 4,
        "restarts": 2,
        "set_env": str(cann),
        "environment": {"OWN": "1"},
    }
    planned = planned_stage(tmp_path / "a b", "evaluate", sampling=serving)
    placement = planned.recipe.launch.placement
    assert placement.urls_of("sampling")[:3] == [
        *("http://a1:8000/v1", "http://a1:8001/v1", "http://b2:8000/v1")
    ]
    weights = planned.inputs["model"].path
    weights.mkdir(parents=True)
    (weights / "config.json").write_text("{}")
    [scripts] = write_scripts(planned)
    assert scripts.files[1].name == "host_00_a1.server_1.sh"
    job = scripts.folder / "job.sbatch"
    assert "#SBATCH --nodelist=a1,b2,c3\n#SBATCH --ntasks-per-node=2\n" in job.read_text()
    # The server of node 1, task 1 ends with an error at each of its three starts.
    path = programs(tmp_path, vllm=DIES, srun=SRUN_SERVERS, scontrol="#!/bin/sh\n")
    said = tmp_path / "said"
    answer = call(job, path, said)
    assert answer.returncode == 7
    assert answer.stdout.count("the server ended with exit code 7") == 3
    given = said_in(said)
    ports = Counter(one["words"][one["words"].index("--port") + 1] for one in given)
    # Stand-ins end at once, with 0, and are started three times each: 3 x 3 and 2 x 3 starts.
    assert ports == {"8000": 9, "8001": 6}
    devices = {
        (one["env"]["SLURM_LOCALID"], one["env"]["ASCEND_RT_VISIBLE_DEVICES"]) for one in given
    }
    assert devices == {("0", "0,1,2,3"), ("1", "4,5,6,7")}
    assert {(one["env"]["CANN"], one["env"]["OWN"]) for one in given} == {("9.1.0", "1")}
    # As if the stage had started them: no requests to the hub, no usage statistics.
    assert [one for one in given if not one["env"].items() >= QUIET.items()] == []
    # By hand, one script starts one server.
    said.unlink()
    answers = "# A host's first server answers at http://HOST:8000/v1: the stage knows that."
    assert answers in scripts.files[3].read_text()
    assert call(scripts.files[3], path, said, SLURM_NODEID="", SLURM_LOCALID="").returncode == 0
    [alone] = said_in(said)
    assert alone["words"][alone["words"].index("--port") + 1] == "8001"
    assert alone["env"]["ASCEND_RT_VISIBLE_DEVICES"] == "4,5,6,7"


def test_training_of_a_slurm_job_in_a_container_gets_its_place_from_slurm(tmp_path: Path) -> None:
    container = {"image": "mindformers:1", "runtime": str(tmp_path / "bin" / "docker")}
    planned = with_configuration(
        planned_stage(
            tmp_path / "a b", training={"container": container, "environment": {"A": "1"}}
        )
    )
    [scripts] = write_scripts(planned)
    docker = "#!/bin/bash\n" + '[ "$1" = run ] || exit 0\nexec bash -c "${@: -1}"\n'
    scontrol = "#!/bin/sh\nprintf 'n0\\nn1\\nn2\\n'\n"
    path = programs(tmp_path, msrun=SAY, srun=SRUN, docker=docker, scontrol=scontrol)
    said = tmp_path / "said"
    answer = call(scripts.folder / "job.sbatch", path, said, SLURM_JOB_NODELIST="n[0-2]")
    assert (answer.returncode, answer.stderr) == (0, "")
    words = [one["words"] for one in said_in(said)]
    assert [one[4] for one in words] == ["--node_rank=0", "--node_rank=1", "--node_rank=2"]
    assert all(one[2] == "--master_addr=n0" for one in words)
    assert {one["env"]["A"] for one in said_in(said)} == {"1"}
