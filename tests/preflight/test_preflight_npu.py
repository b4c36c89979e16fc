"""Which stages need an NPU of the machine that `pclr-ms` runs on, and what is said of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from preflight_helpers import own_launch, verdict, without_absent_sources

from pcl_reasoner.preflight.check import StartCheck, Verdict
from pcl_reasoner.runner.plan import make_plan
from pcl_reasoner.runner.recipe import load_recipe

NO_NPU = "device is Ascend, and this machine has no NPU (no /dev/davinci*, no npu-smi)."
GIVE_SSH = (
    "Give --start ssh, with which training runs on the launch file's hosts and a forward pass on "
    "node01, the first of them; start the run on an Ascend host; or take a launch file for a CPU, "
    "e.g. --launch laptop."
)
BY_HAND = (
    "The servers of prove are started by hand, and would hold the devices of its forward pass. So "
    "first give this command with --until prove in an allocation of one node, or with --start ssh "
    "to a node of an allocation: it keeps the pass in runs/.cache/proofs, and ends because no "
    "server answers. Then start the servers, and give it there again."
)


@pytest.fixture(autouse=True)
def _head_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pcl_reasoner.preflight.machines._has_npu", lambda: False)


def found(launch: str, start: str | None) -> list[str]:
    """Errors about NPUs of a run of all stages."""
    errors = verdict("v15_opg", launch, here=True, start=start).errors
    return [one for one in errors if "no NPU" in one]


def test_over_ssh_a_head_node_needs_no_npu() -> None:
    assert found("atlas_910c_16x16", "ssh") == []


def test_without_ssh_only_the_pass_runs_here_and_ssh_is_the_advice() -> None:
    ends = "--until evaluate_before ends before it."
    assert found("atlas_910c_16x16", None) == [f"v15_opg/prove: {NO_NPU} {GIVE_SSH} {ends}"]


def test_with_start_local_all_hosts_are_this_machine() -> None:
    (one,) = found("atlas_910c_16x16", "local")
    assert one.startswith("v15_opg/train and v15_opg/prove: ")


@pytest.mark.parametrize(("host", "start", "refused"), [("node01", None, 2), ("node01", "ssh", 0)])
def test_one_named_host_is_this_machine_unless_ssh_reaches_it(
    tmp_path: Path, host: str, start: str | None, refused: int
) -> None:
    launch = own_launch(tmp_path, "one_node_7b", hosts=[host])
    errors = verdict("v1_sft", launch, here=True, start=start).errors
    titles = ["v1_sft/train and v1_sft/prove"] if refused else []
    assert [one.split(":")[0] for one in errors] == titles


def test_ssh_to_this_machine_alone_needs_its_npu() -> None:
    (one,) = verdict("v1_sft", "one_node_7b", here=True, start="ssh").errors
    assert one.startswith("v1_sft/train and v1_sft/prove: ")


def test_servers_by_hand_come_after_the_pass() -> None:
    (one,) = found("atlas_910c_16x16_slurm", None)
    assert one == (
        f"v15_opg/prove: {NO_NPU} {GIVE_SSH} {BY_HAND} --until evaluate_before ends before it."
    )
    assert found("atlas_910c_16x16_slurm", "ssh") == []


def start_of(runs: Path, until: str | None, start: str | None, *overrides: str) -> Verdict:
    """What is said at the start of a run."""
    recipe = load_recipe("v1_sft", "one_node_7b", overrides=overrides, until=until)
    plan = make_plan(recipe, runs, until)
    return without_absent_sources(StartCheck(until, runs, start).verdict(plan, plan.stages))


def test_a_run_that_ends_earlier_warns_of_a_later_stage(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    first = start_of(runs, "pack", None)
    (warning,) = [one for one in first.warnings if "no NPU" in one]
    assert warning.startswith(f"v1_sft/train and v1_sft/prove, after this run: {NO_NPU} Start the ")
    assert first.errors == [] and "ends before it" not in warning
    # A stage that is finished already is none of these.
    (runs / "v1_sft" / "train-1a2b3c4d").mkdir(parents=True)
    (warning,) = [one for one in start_of(runs, "pack", None).warnings if "no NPU" in one]
    assert warning.startswith("v1_sft/prove, after this run: ")


def test_later_stages_that_are_wrong_do_not_refuse_an_earlier_one(tmp_path: Path) -> None:
    said = start_of(tmp_path / "runs", "pack", None, "train.learning_rate=fast")
    assert said.errors == [] and not any("no NPU" in one for one in said.warnings)
