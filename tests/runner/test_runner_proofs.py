"""Which proof a stage compares its servers with, and that a proof makes nothing again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pcl_reasoner.core import artifact
from pcl_reasoner.core.errors import InputError
from pcl_reasoner.core.files import yaml_text
from pcl_reasoner.core.hashes import FileHashes
from pcl_reasoner.runner.finished import PlannedInput, finished_proof, made_from
from pcl_reasoner.runner.plan import Plan, make_plan, state
from pcl_reasoner.runner.recipe import Recipe, load_recipe
from pcl_reasoner.stages import STAGES

CLUSTER = "atlas_910c_16x8"


def recipe(folder: Path, stages: dict[str, Any], *overrides: str, **sources: Any) -> Recipe:
    """Stages of a model that comes from outside, with servers, in the given order."""
    value = {
        "name": "short",
        "sources": {
            "policy": {"path": str(folder / "policy"), "kind": "model"},
            "tokenize": {"path": str(folder / "tokens")},
            "train": {"path": str(folder / "train")},
            "problems": {"path": str(folder / "problems")},
            "benchmark": {"path": str(folder / "benchmark.jsonl")},
            **sources,
        },
        "stages": stages,
    }
    file = folder / "short.yaml"
    file.write_text(yaml_text(value))
    return load_recipe(str(file), CLUSTER, overrides=overrides)


EVALUATE = {"inputs": {"model": "export"}}


def proofs(found: Recipe) -> dict[str, list[str]]:
    return {
        name: spec.inputs["proof"] for name, spec in found.stages.items() if "proof" in spec.inputs
    }


def test_the_shipped_recipes_compare_the_evaluation_after_training() -> None:
    assert proofs(load_recipe("v1_sft", "v1_dp8_tp8_pp2")) == {"evaluate": ["prove"]}
    # evaluate_before and sample ask the policy, which no stage of this recipe proves.
    assert proofs(load_recipe("v15_opg", CLUSTER)) == {"evaluate_after": ["prove"]}
    # On a laptop no server is asked.
    assert proofs(load_recipe("v15_opg")) == {}
    only = load_recipe("v15_opg", CLUSTER, until="evaluate_after")
    assert list(only.stages)[-2:] == ["prove", "evaluate_after"]


def test_a_proof_is_of_the_same_model_listed_earlier_and_asks_servers(tmp_path: Path) -> None:
    after = {"export": {}, "prove": {}, "evaluate": EVALUATE}
    assert proofs(recipe(tmp_path, after)) == {"evaluate": ["prove"]}
    before = {"export": {}, "evaluate": EVALUATE, "prove": {}}
    assert proofs(recipe(tmp_path, before)) == {}
    local = {**after, "prove": {"engine": "local"}}
    assert proofs(recipe(tmp_path, local)) == {}
    other = {**after, "evaluate": {"inputs": {"model": "policy"}}}
    assert proofs(recipe(tmp_path, other)) == {}
    asked_locally = recipe(tmp_path, after, "evaluate.engine=local")
    assert proofs(asked_locally) == {}


def test_the_last_proof_counts_and_a_source_may_be_another_name_of_the_model(
    tmp_path: Path,
) -> None:
    stages = {
        "export": {},
        "first": {"stage": "prove"},
        "second": {"stage": "prove", "inputs": {"model": "same"}},
        "evaluate": EVALUATE,
        "sample": {"inputs": {"policy": "same", "problems": "problems"}},
        "named": {"stage": "evaluate", "inputs": {"model": "export", "proof": "first"}},
    }
    found = proofs(recipe(tmp_path, stages, same={"stage": "export"}))
    assert found == {"evaluate": ["second"], "sample": ["second"], "named": ["first"]}


def test_a_proof_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    wrong = {"export": {}, "evaluate": {"inputs": {"model": "export", "proof": "prov"}}}
    with pytest.raises(InputError, match="'prov' is neither a stage nor a source"):
        recipe(tmp_path, wrong)


def planned(folder: Path, stages: dict[str, Any]) -> Plan:
    return make_plan(recipe(folder, stages), folder / "runs")


def test_a_proof_changes_no_fingerprint_but_its_own(tmp_path: Path) -> None:
    with_proof = planned(tmp_path, {"export": {}, "prove": {}, "evaluate": EVALUATE})
    other = planned(tmp_path, {"export": {}, "prove": {"segments": 9}, "evaluate": EVALUATE})
    without = planned(tmp_path, {"export": {}, "evaluate": EVALUATE})
    found = [{one.spec.name: one.fingerprint for one in plan.stages} for plan in (other, without)]
    first = {one.spec.name: one for one in with_proof.stages}
    assert first["prove"].fingerprint != found[0]["prove"]
    for name in ("export", "evaluate"):
        assert {first[name].fingerprint} == {one[name] for one in found}
    assert first["evaluate"].inputs["proof"].origin == "short/prove"
    assert list(first) == ["export", "prove", "evaluate"]


def finish(folder: Path, content: str, **manifest: Any) -> Path:
    partial = folder.with_name(folder.name + ".partial")
    partial.mkdir(parents=True)
    (partial / "proof.json").write_text(content)
    name = folder.name.rpartition("-")[0]
    facts = {"recipe": "first", "name": name, "counts": {}, **manifest}
    artifact.commit(partial, folder, facts)
    return folder


def proof_of(model: PlannedInput, folder: Path, content: str = "{}", **identity: Any) -> Path:
    facts = {"version": STAGES["prove"].version, "config": {"engine": "server"}}
    facts |= {"inputs": {"model": model.fingerprint}, **identity}
    made = made_from({"model": model})
    names = {"stage": "prove", "fingerprint": content, "identity": facts, "made_from": made}
    return finish(folder, content, **names)


def test_a_finished_proof_of_another_recipe_is_found_by_what_it_proved(tmp_path: Path) -> None:
    runs = tmp_path / "runs" / "first"
    export = finish(runs / "export-00000000", "weights", stage="export", fingerprint="a")
    model = PlannedInput("a", export, "first/export", export)
    hashes = FileHashes(tmp_path / "hashes.json")
    assert finished_proof(model, hashes) is None
    proof_of(model, runs / "prove-1", version=1)
    proof_of(model, runs / "prove-2", config={"engine": "local"})
    proof_of(model, runs / "prove-3", inputs={"model": "b"})
    assert finished_proof(model, hashes) is None
    older, newer = (proof_of(model, runs / f"prove-{n}", f"{n}") for n in (4, 5))
    os.utime(older / "manifest.json", (1, 1))
    found = finished_proof(model, hashes)
    assert found == PlannedInput("5", newer, "first/prove", newer)
    # A damaged one does not count, and neither does a proof of what the export was before.
    (newer / "proof.json").write_text("x")
    found = finished_proof(model, hashes)
    assert found is not None and found.path == older
    part = PlannedInput("a/x", export / "proof.json", "first/export", export)
    assert finished_proof(part, hashes) is None
    assert finished_proof(PlannedInput("a", export, "policy"), hashes) is None
    again = finish(runs / "export-9", "other", stage="export", fingerprint="a")
    assert finished_proof(PlannedInput("a", again, "first/export", again), hashes) is None


def test_the_next_recipe_uses_the_proof_and_is_not_made_again_for_it(tmp_path: Path) -> None:
    plan = planned(tmp_path, {"export": {}, "evaluate": EVALUATE})
    export, evaluate = plan.stages
    finish(export.folder, "weights", stage="export", fingerprint=export.fingerprint)
    next_recipe = {
        "name": "next",
        "sources": {
            "policy": {"recipe": "short.yaml", "stage": "export"},
            "problems": {"path": str(tmp_path / "problems")},
        },
        "stages": {"sample": {"inputs": {"problems": "problems"}}},
    }
    (tmp_path / "next.yaml").write_text(yaml_text(next_recipe))

    def sample() -> Any:
        found = make_plan(load_recipe(str(tmp_path / "next.yaml"), CLUSTER), tmp_path / "runs")
        return found.stages[-1]

    before = sample()
    assert "proof" not in before.inputs
    proof = proof_of(export.as_input(), export.folder.with_name("prove-00000000"))
    after = sample()
    assert after.inputs["proof"].path == proof
    assert after.fingerprint == before.fingerprint
    # A stage that is done before there is a proof stays done.
    facts = {"fingerprint": evaluate.fingerprint, "made_from": made_from(evaluate.inputs)}
    finish(evaluate.folder, "{}", stage="evaluate", **facts)
    again = planned(tmp_path, {"export": {}, "evaluate": EVALUATE}).stages[-1]
    assert "proof" in again.inputs and state(again) == "done"
