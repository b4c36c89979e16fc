"""A damaged model folder gives one sentence that names its file, whichever door it comes in by."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from odd_model_folders import KINDS, write_good

from pcl_reasoner.core.errors import PclError, StageError
from pcl_reasoner.inference.dialogue import Dialogue, Problem
from pcl_reasoner.inference.settings import SamplingConfig
from pcl_reasoner.local_sampler.sampler import LocalSampler
from pcl_reasoner.pack.encoder import load_encoder, prompt_messages
from pcl_reasoner.prompt import renderer
from pcl_reasoner.weights.conversion import convert, write_mindformers

PROBLEM = "Tom has 3 apples."


def _prompts(folder: Path, out: Path) -> None:
    Dialogue(folder, SamplingConfig()).prompt(Problem("p", PROBLEM))


def _sampler(folder: Path, out: Path) -> None:
    LocalSampler(folder)


def _tokenize(folder: Path, out: Path) -> None:
    load_encoder(folder).prompt_ids(prompt_messages(PROBLEM, None, ""))


def _train(folder: Path, out: Path) -> None:
    write_mindformers(folder, out / "policy.safetensors")


def _convert(folder: Path, out: Path) -> None:
    convert(folder, out / "converted", "mindformers", 1 << 40, None, logits=False)


FILES = {
    "config": "config.json",
    "generation": "generation_config.json",
    "tokenizer": "tokenizer.json",
    "tokenizer_config": "tokenizer_config.json",
    "template": "chat_template.jinja",
}
"""First word of a kind -> the file that an error names."""


DOORS: list[Callable[[Path, Path], None]] = [_prompts, _sampler, _tokenize, _train, _convert]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_good(tmp_path_factory.mktemp("model") / "good")


def errors_of(folder: Path, out: Path) -> list[PclError]:
    """The errors of all doors; any other exception fails the test."""
    found = []
    for door in DOORS:
        try:
            door(folder, out)
        except PclError as error:
            found.append(error)
    return found


def test_a_good_folder_comes_in_by_every_door(good: Path, tmp_path: Path) -> None:
    assert errors_of(good, tmp_path) == []


@pytest.mark.parametrize("kind", KINDS)
def test_an_odd_folder_is_refused_by_name(
    kind: str, good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(renderer, "SECONDS", 0.5)
    renderer._renderer.close()  # the next one has the shorter limit
    folder = tmp_path / "odd"
    shutil.copytree(good, folder)
    KINDS[kind](folder)
    errors = errors_of(folder, tmp_path)
    renderer._renderer.close()
    first, _, rest = kind.partition(": ")
    named = rest if first == "pickle" else FILES.get(first, "")
    assert any(named in str(error) for error in errors), errors
    if rest == "auto_map":
        assert len(errors) == len(DOORS)
    for error in errors:
        assert isinstance(error, StageError)
        assert str(folder) in str(error)
        assert "\n" not in str(error)
        assert len(str(error)) < 1000
    assert not (tmp_path / "ran").exists()


def test_pickles_beside_complete_safetensors_are_never_opened(good: Path, tmp_path: Path) -> None:
    folder = tmp_path / "both"
    shutil.copytree(good, folder)
    (folder / "pytorch_model.bin").write_bytes(b"never opened")
    assert errors_of(folder, tmp_path) == []
