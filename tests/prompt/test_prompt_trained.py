"""The prompt of training goes with the weights, and other words are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pack_helpers import CHATML, write_model

from pcl_reasoner.core.errors import StageError
from pcl_reasoner.prompt.template import load_template
from pcl_reasoner.prompt.trained import (
    TEMPLATE,
    check_prompt,
    copy_prompt,
    with_system,
    write_prompt,
    write_template,
)

SYSTEM = 'Think "first".\nThen \\boxed{ü}.'
USER = {"role": "user", "content": "1 + 1?"}


def test_the_exported_template_adds_the_system_turn_where_there_is_none(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", CHATML)
    plain = load_template(folder)
    write_prompt(folder, SYSTEM, "", None)
    write_template(folder)
    exported = load_template(folder)
    full = [{"role": "system", "content": SYSTEM}, USER]
    expected = plain.render(full, add_generation_prompt=True)
    assert SYSTEM in expected
    assert exported.render([USER], add_generation_prompt=True) == expected
    assert exported.render(full, add_generation_prompt=True) == expected


def test_transformers_renders_the_exported_template_alike(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    folder = write_model(tmp_path / "model", CHATML)
    write_prompt(folder, SYSTEM, "", None)
    write_template(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    theirs = tokenizer.apply_chat_template([USER], tokenize=False, add_generation_prompt=True)
    assert theirs == load_template(folder).render([USER], add_generation_prompt=True)
    assert SYSTEM in theirs


def test_without_a_system_turn_the_template_stays(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", CHATML)
    write_template(folder)
    write_prompt(folder, None, "x", None)
    write_template(folder)
    assert not (folder / TEMPLATE).exists()
    assert with_system("source", None) == "source"


def test_a_template_file_of_training_is_exported(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", CHATML)
    (tmp_path / "own.jinja").write_text("{{ messages[0]['content'] }}")
    write_prompt(tmp_path, None, "", str(tmp_path / "own.jinja"))
    copy_prompt(tmp_path, folder)
    write_template(folder)
    assert load_template(folder).render([USER], add_generation_prompt=True) == "1 + 1?"


def test_other_words_than_in_training_are_refused(tmp_path: Path) -> None:
    check_prompt(tmp_path, "anything", "at all")  # unknown: a published model
    write_prompt(tmp_path, SYSTEM, " Box it.", None)
    check_prompt(tmp_path, SYSTEM, " Box it.")
    check_prompt(tmp_path, None, " Box it.")  # the template has the system turn
    with pytest.raises(StageError, match=r"suffix is '' here and ' Box it\.' in training"):
        check_prompt(tmp_path, None, "")
    with pytest.raises(StageError, match="system is 'x' here and .* delete prompt.json"):
        check_prompt(tmp_path, "x", " Box it.")


def test_a_prompt_without_a_file_copies_nothing(tmp_path: Path) -> None:
    (tmp_path / "to").mkdir()
    copy_prompt(tmp_path, tmp_path / "to")
    assert list((tmp_path / "to").iterdir()) == []
    write_prompt(tmp_path, None, "", None)
    assert json.loads((tmp_path / "prompt.json").read_text()) == {
        "system": None,
        "suffix": "",
        "template": None,
    }
