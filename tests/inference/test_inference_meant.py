"""A server must have been started with the stage's model, or the stage says what it found."""

from __future__ import annotations

from pathlib import Path

import pytest
from completion_server import CompletionServer
from log_prob_server import LogProbServer
from perplexity_helpers import SERVER, response, run, write_inputs
from sample_helpers import context, model_folder
from servers import serving

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.inference.meant import Meant, check_root
from pcl_reasoner.sample.stage import SampleConfig, sample
from pcl_reasoner.weights.identity import weights_hash

CONFIG = SampleConfig(
    engine="server", n=2, max_new_tokens=40, max_model_len=200, top_k=0, concurrency=3
)


def test_a_server_of_another_folder_stops_the_stage_and_both_are_named(
    inputs: dict[str, Path], tmp_path: Path, server: CompletionServer
) -> None:
    policy = inputs["policy"]
    server.models = [{"id": "policy", "max_model_len": 200, "root": "/runs/export-before"}]
    with pytest.raises(StageError, match="expected") as raised:
        sample(CONFIG, inputs, tmp_path, context(tmp_path, server_urls=[server.url]))
    assert f"{server.url}: serves /runs/export-before, expected {policy}" in str(raised.value)
    assert server.asked == []
    # The remedy that the message gives.
    known = {str(policy): "/runs/export-before"}
    there = context(tmp_path, server_urls=[server.url], server_paths=known)
    assert sample(CONFIG, inputs, tmp_path, there).kept == 6


def test_a_server_of_this_folder_and_one_that_says_nothing_are_asked(
    inputs: dict[str, Path], tmp_path: Path, server: CompletionServer
) -> None:
    link = tmp_path / "link"
    link.symlink_to(inputs["policy"])
    for number, root in enumerate([str(inputs["policy"]), str(link), None]):
        server.models = [{"id": "policy", "max_model_len": 200, "root": root}]
        out = tmp_path / str(number)
        assert sample(CONFIG, inputs, out, context(out, server_urls=[server.url])).kept == 6


def test_the_longest_prefix_says_what_a_folder_is_called_on_the_servers_hosts(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "runs" / "export-1"
    paths = {str(tmp_path): "/nfs", str(tmp_path / "runs"): "/mnt/runs/", str(folder): "org/model"}
    assert Meant(folder, paths).root == "org/model"
    assert Meant(folder, dict(list(paths.items())[:2])).root == "/mnt/runs/export-1"
    assert Meant(folder, dict(list(paths.items())[:1])).root == "/nfs/runs/export-1"
    # A part of a name is no folder.
    assert Meant(folder, {str(tmp_path / "run"): "/x"}).root == str(folder)
    with pytest.raises(StageError, match="serves org/other, expected org/model"):
        check_root("http://a/v1", "org/other", Meant(folder, paths))


@pytest.mark.parametrize("told", [{"STAND_IN_ROOT": "/somewhere"}, {"STAND_IN_NAMES": "policy"}])
def test_a_server_that_somebody_else_started_at_the_address_is_noticed(
    inputs: dict[str, Path], tmp_path: Path, told: dict[str, str]
) -> None:
    placement = serving(tmp_path, environment=told)
    with pytest.raises(StageError, match="Another server listens at this address") as raised:
        sample(CONFIG, inputs, tmp_path / "out", context(tmp_path / "out", **placement))
    name = f"policy@{weights_hash(inputs['policy'])[:16]}"
    assert name in str(raised.value) or "from /somewhere; expected policy" in str(raised.value)
    assert str(inputs["policy"]) in str(raised.value)


def test_the_hash_of_the_weights_follows_their_content(tmp_path: Path) -> None:
    one, same = model_folder(tmp_path / "a"), model_folder(tmp_path / "b")
    before = weights_hash(one)
    assert before == weights_hash(same)
    file = one / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    assert weights_hash(one) != before
    text = (same / "config.json").read_text()
    (same / "config.json").write_text(text + " ")
    assert weights_hash(same) != before


def test_perplexities_are_not_asked_of_another_model(tmp_path: Path) -> None:
    policy = model_folder(tmp_path / "policy")
    inputs = write_inputs(tmp_path / "in", policy, [response("a", 0, [5])])
    other = LogProbServer()
    other.models = [{"id": "policy", "max_model_len": 200, "root": "/other"}]
    with pytest.raises(StageError, match=f"serves /other, expected {policy}"):
        run(inputs, tmp_path / "out", SERVER, server_urls=[other.url])
    other.stop()
