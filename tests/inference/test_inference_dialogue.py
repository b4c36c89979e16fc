"""Prompts with a text for each kind of problem, and templates that begin the response."""

from pathlib import Path

import pytest

from pcl_reasoner.inference.dialogue import Dialogue, Problem
from pcl_reasoner.inference.settings import SamplingConfig
from pcl_reasoner.pack.encoder import load_encoder, sample_of
from tests.helpers.pack_helpers import CHATML, write_model

SUFFIX = {"math": " Box it.", "code": " In Python."}
OPENED = CHATML.replace("<|im_start|>assistant\\n'", "<|im_start|>assistant\\n<think>\\n'")


def dialogue_of(folder: Path, template: str = CHATML) -> Dialogue:
    write_model(folder, template)
    (folder / "generation_config.json").write_text('{"eos_token_id": 0}')
    return Dialogue(folder, SamplingConfig(suffix=SUFFIX))


@pytest.mark.parametrize(
    ("kind", "expected"), [("math", "f? Box it."), ("code", "f? In Python."), ("chat", "f?")]
)
def test_each_kind_of_problem_has_its_own_text_in_sampling_and_in_training(
    kind: str, expected: str, tmp_path: Path
) -> None:
    prompt = dialogue_of(tmp_path).prompt(Problem("x", "f?", kind=kind))
    assert prompt.messages == [{"role": "user", "content": expected}]
    encoder = load_encoder(tmp_path, suffix=SUFFIX)
    record = {"problem": "f?", "response": "8", "kind": kind}
    sample = sample_of(record, encoder.system, encoder.suffix)
    assert encoder.prompt_ids(sample.messages) == prompt.ids


def test_a_problem_without_a_kind_is_of_math() -> None:
    record = {"problem": "f?", "response": "8", "kind": None}
    assert sample_of(record, None, SUFFIX).messages[0]["content"] == "f? Box it."


def test_a_text_has_the_tag_with_which_its_template_ends(tmp_path: Path) -> None:
    plain, opened = dialogue_of(tmp_path / "plain"), dialogue_of(tmp_path / "opened", OPENED)
    assert plain.prompt(Problem("x", "1")).ids != opened.prompt(Problem("x", "1")).ids
    ids = opened.encode("a</think>b")
    assert opened.response(ids, "stop") == "<think>\na</think>b"
    assert plain.response(ids, "stop") == "a</think>b"
    assert opened.response(opened.encode("<think>a"), "length") == "<think>a"
    assert opened.response([], "length") == ""
