"""A run: the runner gives a stage its proof, and the manifest shows what was compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from proved_server import ProvedServer, write_proof
from runner_helpers import Notes

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.core.files import yaml_text
from pcl_reasoner.runner import runner
from pcl_reasoner.runner.plan import Plan, PlannedStage, make_plan, state
from pcl_reasoner.runner.recipe import load_recipe

KEYS = {"n": 2, "max_new_tokens": 40, "max_model_len": 200, "concurrency": 1}


def plan_of(folder: Path, inputs: dict[str, Path], server: ProvedServer, proof: Path) -> Plan:
    """A recipe of one stage, whose proof is a folder from elsewhere."""
    sources: dict[str, Any] = {name: {"path": str(path)} for name, path in inputs.items()}
    sources["policy"]["kind"] = "model"
    given = {"problems": "problems", "policy": "policy"}
    if proof.is_dir():
        sources["proved"] = {"path": str(proof)}
        given["proof"] = "proved"
    recipe = {"name": "one", "sources": sources, "stages": {"sample": {"inputs": given, **KEYS}}}
    launch = {
        "name": "here",
        "title": "here",
        "verified": "No.",
        "profile": "paper",
        "hashed": {},
        "placement": {"server_urls": [server.url]},
    }
    (folder / "one.yaml").write_text(yaml_text(recipe))
    (folder / "here.yaml").write_text(yaml_text(launch))
    loaded = load_recipe(str(folder / "one.yaml"), str(folder / "here.yaml"))
    return make_plan(loaded, folder / "runs")


def run(plan: Plan) -> PlannedStage:
    runner.run(plan, Notes())
    return plan.stages[-1]


def test_the_manifest_shows_each_start_and_a_proof_makes_nothing_again(
    inputs: dict[str, Path], tmp_path: Path
) -> None:
    server = ProvedServer(started=7.5)
    proof = write_proof(tmp_path / "prove-12345678", inputs["policy"])
    done = run(plan_of(tmp_path, inputs, server, proof))
    manifest = done.manifest()
    assert manifest is not None
    (compared,) = manifest["counts"]["info"]["compared"]
    assert (compared["url"], compared["started"], compared["tokens"]) == (server.url, 7.5, 211)
    assert manifest["origins"]["proof"] == "proved"
    assert "proof" not in manifest["identity"]["inputs"] | manifest["made_from"]
    written = json.loads((done.folder / "sampling.json").read_text())
    assert written["responses"]["compared"] == [compared]
    # Another proof, or none, and the stage is still done.
    for folder in (write_proof(tmp_path / "prove-2", inputs["policy"], (9,)), tmp_path / "none"):
        again = plan_of(tmp_path, inputs, server, folder).stages[-1]
        assert (again.fingerprint, state(again)) == (done.fingerprint, "done")
    server.stop()


def test_a_wrong_server_stops_the_run_and_the_right_one_continues_it(
    inputs: dict[str, Path], tmp_path: Path
) -> None:
    server = ProvedServer()
    server.shift = 0.5
    proof = write_proof(tmp_path / "prove-12345678", inputs["policy"])
    plan = plan_of(tmp_path, inputs, server, proof)
    with pytest.raises(StageError, match="stage one/sample: http.*does not compute what the"):
        run(plan)
    assert server.questions == 0
    server.start(2.0)
    assert run(plan).done and server.questions == 3
    server.stop()
