"""Shipped launch files: each goes with every recipe that it is for, and one shell launcher."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from plan_trainings import recipe_training

from pcl_reasoner.cli.main import cli
from pcl_reasoner.core.files import find, shipped
from pcl_reasoner.core.yaml_file import read_yaml
from pcl_reasoner.estimate.chips import read_chip
from pcl_reasoner.estimate.layouts import least_recompute, memory_limit
from pcl_reasoner.estimate.memory_estimate import fullest, parameters_held
from pcl_reasoner.runner.launch_file import load_launch
from pcl_reasoner.runner.plan import make_plan
from pcl_reasoner.runner.recipe import load_recipe
from pcl_reasoner.train.config import TrainConfig

FILES = sorted(path.stem for path in shipped("launch").glob("*.yaml"))
RECIPES = sorted(path.stem for path in shipped("recipes").glob("*.yaml"))
SHELL = shipped("launch") / "msrun.sh"
QWEN_7B_PARAMETERS = 7_615_616_512
"""As Qwen publishes them."""


def test_there_is_something_to_check() -> None:
    assert {"laptop", "one_node_7b", "two_hosts_cpu", "atlas_910c_16x8"} <= set(FILES)
    assert RECIPES == ["am_thinking_v1", "smoke", "v15_opg", "v1_sft"]


@pytest.mark.parametrize("launch", FILES)
@pytest.mark.parametrize("recipe", RECIPES)
def test_every_launch_file_goes_with_every_recipe(launch: str, recipe: str) -> None:
    # Stages rl need hosts that only sample: am_thinking_v1's last stages go with one file of these.
    ends = {"atlas_910c_teacher": "sample_sft", "atlas_910c_rl": "report"}
    whole = recipe != "am_thinking_v1" or load_launch(launch).profile == "laptop"
    until = [] if whole else ["--until", ends.get(launch, "export")]
    answer = CliRunner().invoke(cli, ["validate", recipe, "--launch", launch, *until])
    assert (answer.exit_code, answer.output.splitlines()[-1].startswith("ok: ")) == (0, True)
    loaded = load_recipe(recipe, launch)
    placement = loaded.launch.placement
    config = loaded.stages["train"].config
    assert isinstance(config, TrainConfig)
    assert config.devices == len(placement.hosts) * placement.devices_per_host


@pytest.mark.parametrize("launch", FILES)
def test_a_launch_file_is_named_as_its_file(launch: str) -> None:
    assert load_launch(launch).name == launch


def test_only_yaml_files_are_listed() -> None:
    lines = CliRunner().invoke(cli, ["ls"]).output.splitlines()
    listed = [line.split()[1] for line in lines if line.startswith("launch")]
    assert listed == FILES


def test_the_7b_model_is_qwens_own() -> None:
    """Two embeddings, the norms, and 28 layers of attention with biases and three matrices."""
    shape = load_recipe("v1_sft", "one_node_7b").stages["train"].config.model  # type: ignore[attr-defined]
    hidden, keys, feed = shape.hidden_size, 512, shape.intermediate_size
    assert keys == hidden // shape.num_heads * shape.n_kv_heads
    attention = 2 * hidden * hidden + 2 * hidden * keys + hidden + 2 * keys
    layer = attention + 3 * hidden * feed + 2 * hidden
    whole = 2 * shape.vocab_size * hidden + hidden + shape.num_layers * layer
    assert whole == QWEN_7B_PARAMETERS
    assert shape == load_recipe("v15_opg", "one_node_7b").stages["train"].config.model  # type: ignore[attr-defined]


@pytest.mark.parametrize("recipe", RECIPES)
def test_one_node_holds_the_7b_model(recipe: str, tmp_path: Path) -> None:
    chip = read_chip("ascend_910b", "bfloat16")
    job = recipe_training(recipe, "one_node_7b", tmp_path)
    assert (job.data, job.tensor, job.stages, job.stage_layers) == (1, 4, 2, (14, 14))
    assert fullest(job)[1] <= memory_limit(job, chip)
    # As the front-end compile found the first stage at full size.
    assert parameters_held(job, 0) == 952_026_880
    # The layers that it recomputes are at least those that must be.
    least = least_recompute(job, chip).recomputed
    assert all(own >= needed for own, needed in zip(job.recomputed, least, strict=True))


def test_the_7b_model_of_the_second_recipe_is_that_of_the_first() -> None:
    assert load_recipe("v15_opg", "one_node_7b").sources["policy"].recipe == "v1_sft.yaml"


def test_what_the_teachers_launch_file_has_made_the_other_takes_over(tmp_path: Path) -> None:
    prints = []
    for launch in ("atlas_910c_teacher", "atlas_910c_16x8"):
        plan = make_plan(load_recipe("am_thinking_v1", launch), tmp_path)
        prints.append({one.spec.name: one.fingerprint for one in plan.stages})
    names = list(prints[0])
    before = names[: names.index("train")]
    assert {"sample_truth", "revise", "sample_sft", "perplexity"} <= set(before)
    assert all(prints[0][name] == prints[1][name] for name in before)
    # The layouts of the trainings differ.
    assert prints[0]["train"] != prints[1]["train"]


def test_two_hosts_are_both_this_machine() -> None:
    placement = load_launch("two_hosts_cpu").placement
    assert placement.hosts == ["127.0.0.1", "127.0.0.2"]
    assert placement.devices_per_host == 1


SAY = f"""#!{sys.executable}
import json, os, sys
print(json.dumps([sys.argv[1:], os.getcwd(), os.environ["LOG_MF_PATH"], os.environ.get("SEEN")]))
"""


def msrun(folder: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run launch/msrun.sh with a program that prints what it is given in place of msrun."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    python = f'#!/bin/sh\nexec {sys.executable} "$@"\n'
    stubs = {"msrun": SAY, "hostname": "#!/bin/sh\necho node02\n", "python": python}
    for name, text in stubs.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    return subprocess.run(
        ["bash", str(SHELL), *words],
        env={"PATH": f"{programs}:/usr/bin:/bin"} | env,
        cwd=folder,
        capture_output=True,
        text=True,
    )


def given(answer: subprocess.CompletedProcess[str]) -> list[Any]:
    assert (answer.returncode, answer.stderr) == (0, "")
    return json.loads(answer.stdout)


def test_msruns_arguments_for_the_second_of_two_hosts(tmp_path: Path) -> None:
    """2 hosts x 16 devices = 32 workers."""
    (tmp_path / "a b").mkdir()
    config = tmp_path / "a b" / "mindformers.train.yaml"
    config.write_text("run_mode: finetune\n")
    (tmp_path / "set_env.sh").write_text('export SEEN="yes$NOT_SET_ANYWHERE"\n')
    hosts = {"HOSTS": "node01 node02", "DEVICES": "16", "SET_ENV": str(tmp_path / "set_env.sh")}
    words, folder, log, seen = given(msrun(tmp_path, "a b/mindformers.train.yaml", **hosts))
    assert words == [
        "--worker_num=32",
        "--local_worker_num=16",
        "--master_addr=node01",
        "--master_port=8118",
        "--node_rank=1",  # found by the host's name
        "--log_dir=work/msrun_log",
        "--join=True",
        "--cluster_time_out=1200",
        "python",
        "-m",
        "pcl_reasoner.worker",
        str(config),
    ]
    assert (folder, log, seen) == (str(config.parent), f"{config.parent}/work/log", "yes")


def test_msrun_takes_these_arguments(tmp_path: Path) -> None:
    from mindspore.parallel.cluster.run import get_args

    (tmp_path / "one.yaml").write_text("run_mode: finetune\n")
    words = given(msrun(tmp_path, "one.yaml", RANK="0"))[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["msrun", *words])
        found = get_args()
    assert (found.worker_num, found.local_worker_num, found.node_rank) == (8, 8, 0)
    assert (found.master_addr, found.join, found.task_script) == ("node02", True, "python")


@pytest.mark.parametrize(
    ("words", "env", "said"),
    [
        ([], {}, "give the MindFormers YAML, and nothing else (got 0 arguments)"),
        (["absent.yaml"], {}, "absent.yaml: no such file"),
        (["one.yaml"], {"HOSTS": "a b"}, "this host, node02, is not among HOSTS (a b)"),
        (["one.yaml"], {"HOSTS": "a b", "RANK": "2"}, "RANK is 2, HOSTS names 2 hosts, from 0"),
        (["one.yaml"], {"RANK": "two"}, "RANK and DEVICES are numbers, got two, 8"),
        (["one.yaml"], {"RANK": "0", "PORT": "x"}, "PORT and SECONDS_TO_JOIN are numbers, got x"),
    ],
)
def test_a_wrong_place_starts_nothing(
    tmp_path: Path, words: list[str], env: dict[str, str], said: str
) -> None:
    (tmp_path / "one.yaml").write_text("run_mode: finetune\n")
    answer = msrun(tmp_path, *words, **env)
    assert (answer.returncode, answer.stdout) == (1, "")
    assert f"msrun.sh: {said}" in answer.stderr


def test_the_shell_launcher_is_short_and_can_be_run() -> None:
    assert len(SHELL.read_text().splitlines()) <= 80
    assert os.access(SHELL, os.X_OK)


def test_swap_where_everything_is_recomputed_is_said_beside_it() -> None:
    """V1.5's launch file keeps the published key; the comment says that it does nothing."""
    file = shipped("launch") / "atlas_910c_16x8.yaml"
    train = read_yaml(file)["hashed"]["train"]
    assert train["swap"] is True and train["recompute"] is True
    assert "of no effect" in file.read_text().partition("    swap: true")[0]


SHAPE_7B = {
    "model_type": "qwen2",
    "num_hidden_layers": 28,
    "hidden_size": 3584,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "intermediate_size": 18944,
    "vocab_size": 152064,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
    "max_position_embeddings": 32768,
    "tie_word_embeddings": False,
}


@pytest.mark.parametrize("copied", [True, False])
def test_a_persons_own_7b_model_fits_and_uses_all_devices(
    copied: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recipe of docs/your_own.md, with the page's launch file or a copy of one_node_7b."""
    page = (Path(__file__).parents[2] / "docs" / "your_own.md").read_text()
    texts = re.findall(r"```yaml\n(.*?)```", page, re.S)
    for name in ("my_recipe.yaml", "my_machine.yaml"):
        [text] = [text for text in texts if text.startswith(f"# {name}")]
        (tmp_path / name).write_text(text)
    if copied:
        (tmp_path / "my_machine.yaml").write_text(find("one_node_7b", "launch").read_text())
    monkeypatch.chdir(tmp_path)
    Path("models/mine").mkdir(parents=True)
    Path("models/mine/config.json").write_text(json.dumps(SHAPE_7B))
    Path("prompts").mkdir()
    Path("prompts/my_judge.txt").write_text("{ground_truth} {candidate}")
    job = recipe_training("my_recipe.yaml", "my_machine.yaml", tmp_path / "runs")
    recipe = load_recipe("my_recipe.yaml", "my_machine.yaml")
    chip = read_chip("ascend_910b", "bfloat16")
    assert fullest(job)[1] <= memory_limit(job, chip)
    placement = recipe.launch.placement
    assert job.data * job.tensor * job.stages == placement.devices_per_host == 8
    for kind in ("sampling", "judging"):
        serving = placement.serving_of(kind)  # type: ignore[arg-type]
        assert serving is not None and serving.devices is not None
        assert serving.servers * serving.devices == 8
