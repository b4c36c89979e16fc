"""The commands of every host, for the launch files that are shipped."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from preflight_helpers import own_launch

from pcl_reasoner.core.errors import InputError
from pcl_reasoner.core.files import find, yaml_text
from pcl_reasoner.core.yaml_file import read_yaml
from pcl_reasoner.hosts.commands import commands_for_plan
from pcl_reasoner.runner.plan import make_plan
from pcl_reasoner.runner.recipe import load_recipe

SET_ENV = "source /usr/local/Ascend/ascend-toolkit/set_env.sh"


def commands(
    tmp_path: Path, recipe: str, launch: str, *overrides: str, by_hand: bool = True
) -> dict[str, list[str]]:
    """Host -> ``purpose: command`` of all its commands; ``by_hand``: a person starts servers."""
    launch = own_launch(tmp_path, launch, sampling=None) if by_hand else launch
    plan = make_plan(load_recipe(recipe, launch, overrides=overrides), tmp_path / "runs")
    return {
        host: [f"{purpose}: {command}" for purpose, command in found]
        for host, found in commands_for_plan(plan).items()
    }


def folder_in(command: str) -> str:
    found = re.search(r"cd (\S+)", command)
    assert found is not None
    return found.group(1)


def exports(folder: str, ranks: int) -> str:
    """What is set for every training: nothing is asked of the hub, logs go to the work folder.

    Several ranks also wait for each other, and MindFormers is told that they share the folder.
    """
    always = (
        "export HF_HUB_OFFLINE=1 && export HF_DATASETS_OFFLINE=1 && "
        f"export LOG_MF_PATH={folder}/work/log && export MS_OM_PATH={folder}/work/log && "
        "export OPENBLAS_NUM_THREADS=1"
    )
    several = (
        f" && export DEVICE_NUM_PER_NODE=8 && export SHARED_PATHS={folder} && "
        "export HCCL_CONNECT_TIMEOUT=7200 && export HCCL_EXEC_TIMEOUT=7200"
    )
    return always + (several if ranks > 1 else "")


def test_v1_on_its_16_hosts(tmp_path: Path) -> None:
    found = commands(tmp_path, "v1_sft", "v1_dp8_tp8_pp2")
    hosts = [f"node{number:02d}" for number in range(1, 17)]
    assert list(found) == hosts
    for rank, host in enumerate(hosts):
        [train] = [line for line in found[host] if line.startswith("v1_sft/train: ")]
        folder = folder_in(train)
        assert Path(folder).parent == tmp_path / "runs" / "v1_sft"
        assert re.fullmatch(r"train-[0-9a-f]{8}\.partial", Path(folder).name)
        assert train == (
            f"v1_sft/train: ranks {8 * rank} to {8 * rank + 7}: {SET_ENV} && "
            f"{exports(folder, 128)} && "
            f"cd {folder} && msrun "
            f"--worker_num=128 --local_worker_num=8 --master_addr=node01 --master_port=8118 "
            f"--node_rank={rank} --log_dir=output/msrun_log --join=True --cluster_time_out=1200 "
            f"python -m pcl_reasoner.worker {folder}/mindformers.yaml"
        )


def test_msrun_takes_these_arguments(tmp_path: Path) -> None:
    """Upstream's launcher is called with flags that it does not take (defect 10)."""
    from mindspore.parallel.cluster.run import get_args

    train = commands(tmp_path, "v1_sft", "v1_dp8_tp8_pp2")["node03"][0]
    words = shlex.split(train.partition("msrun ")[2])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["msrun", *words])
        given = get_args()
    assert (given.worker_num, given.local_worker_num, given.node_rank) == (128, 8, 2)
    assert (given.master_addr, given.master_port) == ("node01", 8118)
    assert (given.join, given.cluster_time_out) == (True, 1200)
    assert given.task_script == "python"
    assert given.task_script_args[:2] == ["-m", "pcl_reasoner.worker"]


def test_a_server_that_the_stage_starts_is_not_for_a_person_to_start(tmp_path: Path) -> None:
    found = commands(tmp_path, "v1_sft", "v1_dp8_tp8_pp2", by_hand=False)
    lines = [line for host in found.values() for line in host]
    assert lines and not [line for line in lines if "vllm" in line]


def test_every_host_serves_the_trained_model_for_evaluation(tmp_path: Path) -> None:
    found = commands(tmp_path, "v1_sft", "v1_dp8_tp8_pp2")
    for lines in found.values():
        [server] = [line for line in lines if line.startswith("v1_sft/evaluate: server: ")]
        words = shlex.split(server.rpartition(" && ")[2])
        assert words[:2] == ["vllm", "serve"]
        assert re.search(r"/runs/v1_sft/export-[0-9a-f]{8}$", words[2])
        options = dict(zip(words[3::2], words[4::2], strict=True))
        assert options["--tensor-parallel-size"] == "8"
        assert options["--port"] == "8000"
        # 129 024 new tokens and the prompt: a shorter context would cap the score.
        assert int(options["--max-model-len"]) > 129_024
        assert options["--generation-config"] == "vllm"
        assert options["--served-model-name"]


GRADE = """
name: graded
sources:
  problems: {path: PLACE}
  judge: {hub: Qwen/Qwen3-32B, revision: main, kind: model}
  policy: {hub: a/policy, revision: main, kind: model}
stages:
  sample: {inputs: {problems: problems}, template: "PLACE/chat template.jinja"}
  grade: {method: judge, judge_model: Qwen3-32B, reward_model: {model: scores},
          inputs: {problems: problems, judge: judge, reward_model: policy}}
"""


def test_servers_of_policy_judge_and_reward_model_have_ports_of_their_own(tmp_path: Path) -> None:
    recipe = tmp_path / "graded.yaml"
    recipe.write_text(GRADE.replace("PLACE", str(tmp_path)))
    found = commands(tmp_path, str(recipe), "v1_dp8_tp8_pp2")["node01"]
    purposes = [line.rpartition(": ")[0].partition(f": {SET_ENV}")[0] for line in found]
    assert purposes == [
        "graded/sample: server",
        "graded/grade: server of the judge",
        "graded/grade: server of the reward model",
    ]
    quiet = " && export DO_NOT_TRACK=1 && "
    words = [shlex.split(line.partition(quiet)[2]) for line in found]
    ports = [one[one.index("--port") + 1] for one in words]
    assert ports == ["8000", "8100", "8200"]
    policy, judge, reward = words
    template = policy[policy.index("--chat-template") + 1]
    assert template == str(tmp_path / "chat template.jinja")
    assert judge[judge.index("--served-model-name") + 1] == "Qwen3-32B"
    assert judge[judge.index("--max-model-len") + 1] == "16384"
    assert reward[:2] == ["bash", "-c"] and "PYTHONPATH" in reward[2]
    assert reward[4:6] == ["vllm", "serve"]
    options = ["--runner", "pooling", "--middleware", "pclr_guard.Guard"]
    assert " ".join(options) in " ".join(reward)


def test_a_server_whose_weights_are_not_named_has_no_command(tmp_path: Path) -> None:
    recipe = tmp_path / "graded.yaml"
    text = GRADE.replace("PLACE", str(tmp_path)).replace(", judge: judge", "")
    text = text.replace("  judge: {hub", "  unused: {hub")
    recipe.write_text(text.replace(", reward_model: policy", ""))
    found = commands(tmp_path, str(recipe), "v1_dp8_tp8_pp2")["node01"]
    assert [line.partition(":")[0] for line in found] == ["graded/sample"]


def test_v15_in_the_order_of_its_stages(tmp_path: Path) -> None:
    first = commands(tmp_path, "v15_opg", "atlas_910c_16x8")["node01"]
    purposes = [line.split(": ")[0].removeprefix("v15_opg/") for line in first]
    assert purposes == ["sample", "train", "evaluate_before", "prove", "evaluate_after"]
    sample, train, before, _, after = first
    # What samples and what is evaluated first is the policy; what is evaluated last is the export.
    served = [shlex.split(line.partition("vllm serve ")[2])[0] for line in (sample, before, after)]
    assert served[0] == served[1] != served[2]
    assert Path(served[2]).name.startswith("export-")
    assert "export HCCL_CONNECT_TIMEOUT=7200 && " in train
    # 16 hosts x 8 devices = 4 x 8 x 4
    assert "v15_opg/train: ranks 0 to 7: " in train and "--worker_num=128 " in train


def test_a_layout_that_does_not_fit_the_devices_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        commands(tmp_path, "v1_sft", "v1_dp8_tp8_pp2", "train.model_parallel=4")
    assert "got 8 x 4 x 2 = 64 ranks for 16 hosts x 8 devices = 128" in str(caught.value)


def test_a_laptop_is_one_process(tmp_path: Path) -> None:
    found = commands(tmp_path, "v1_sft", "laptop")
    [line] = found["localhost"]
    folder = folder_in(line)
    assert list(found) == ["localhost"]
    assert line == (
        f"v1_sft/train: ranks 0 to 0: {exports(folder, 1)} && cd {folder} && "
        f"python -m pcl_reasoner.worker {folder}/mindformers.yaml"
    )


def test_environment_and_paths_are_quoted_for_a_shell(tmp_path: Path) -> None:
    launch = read_yaml(find("laptop", "launch"))
    launch["placement"] |= {"env": {"WORDS": "a b"}, "set_env": "/opt/my env.sh"}
    (tmp_path / "here.yaml").write_text(yaml_text(launch))
    folder = tmp_path / "with space"
    here = str(tmp_path / "here.yaml")
    [line] = commands(folder, "v1_sft", here, by_hand=False)["localhost"]
    parts = [shlex.split(part) for part in line.partition(": ranks 0 to 0: ")[2].split(" && ")]
    assert parts[0] == ["source", "/opt/my env.sh"]
    # The launch file's own comes last, over what is always set.
    assert parts[-3] == ["export", "WORDS=a b"]
    assert parts[-2][0] == "cd" and parts[-2][1].startswith(str(folder / "runs"))
    assert parts[-1][:3] == ["python", "-m", "pcl_reasoner.worker"]
