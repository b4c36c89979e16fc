"""Faults in what a server has loaded: they are noticed, and the cause is named.

The server is transformers here. tests/vllm_lane has all faults, with a real vLLM.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from prove_helpers import FAULTS, LENGTH, ModelServer, Trained, untie_head

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.prove.config import LIMITS
from pcl_reasoner.recheck.texts import read_proof
from pcl_reasoner.weights.identity import weights_hash

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return Trained(tmp_path_factory.mktemp("trained"))


def test_a_sound_server_is_proved(trained: Trained, tmp_path: Path) -> None:
    server = ModelServer(trained.export)
    counts = trained.prove(tmp_path / "out", trained.export, {}, server_urls=[server.url])
    server.stop()
    proof = json.loads((tmp_path / "out" / "proof.json").read_text())
    assert proof["proved"] and counts.kept == 4
    (one,) = proof["servers"]
    # The prompts' tokens count, too: all but the first of each.
    assert one["difference"]["tokens"] == 5 + 40 + 90 + 120 - 4
    assert one["difference"]["mean"] < 1e-5
    assert [place["first"] for place in one["difference"]["by_position"]] == [
        *(1, 2, 4, 8, 16, 32, 64),
    ]
    assert (one["url"], one["model"]) == (server.url, str(trained.export))
    # What later stages compare their servers with: all four texts have 251 log-probs.
    stored = read_proof(tmp_path / "out", LENGTH)
    assert stored.weights == weights_hash(trained.export) == proof["weights"]
    assert stored.limits == LIMITS["float32"]
    assert [len(text.token_ids) for text in stored.texts] == [5, 40, 90, 120]
    assert [len(text.log_probs) for text in stored.texts] == [4, 39, 89, 119]


def test_the_local_sampler_is_proved(trained: Trained, tmp_path: Path) -> None:
    counts = trained.prove(tmp_path / "out", trained.export, {"engine": "local"})
    assert counts.info["tokens"] == 251
    assert counts.info["mean"] < 1e-5


@pytest.mark.parametrize("fault", ["joined matrix", "layer"])
def test_a_fault_is_noticed_and_its_cause_is_named(
    trained: Trained, tmp_path: Path, fault: str
) -> None:
    spoil, cause = FAULTS[fault]
    folder = trained.faulty(f"faulty_{fault.split()[0]}", spoil)
    server = ModelServer(folder)
    with pytest.raises(StageError, match=f"The cause: {cause}"):
        trained.prove(tmp_path / "prove-12345678", folder, {}, server_urls=[server.url])
    server.stop()
    assert not (tmp_path / "prove-12345678" / "proof.json").exists()
    details = json.loads((tmp_path / "logs" / "prove-12345678.proof.json").read_text())
    assert details["suspects"][0]["reproduces"]
    assert details["difference"]["mean"] > 100 * details["suspects"][0]["mean"]


def test_a_head_that_is_not_tied_any_more_is_named(tmp_path: Path) -> None:
    trained = Trained(tmp_path / "tied", tied=True)
    folder = trained.faulty("faulty_untied", untie_head)
    server = ModelServer(folder)
    cause = "The cause: an output head of its own, the embedding of the policy before training"
    with pytest.raises(StageError, match=cause):
        trained.prove(tmp_path / "out", folder, {}, server_urls=[server.url])
    server.stop()
