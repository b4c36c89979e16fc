"""The page of all commands is current, and its examples parse."""

from __future__ import annotations

import re
from pathlib import Path

from pcl_reasoner.cli import docs
from pcl_reasoner.cli.main import cli, main
from pcl_reasoner.core import files

ROOT = Path(__file__).resolve().parents[2]


def test_is_current() -> None:
    assert docs.FILE.read_text(encoding="utf-8") == docs.document(), (
        "run: python -m pcl_reasoner.cli.docs"
    )


def test_every_command_has_help_with_an_example_that_parses(capsys) -> None:
    assert main(["--help"]) == 0
    listed = capsys.readouterr().out
    for name, command in cli.commands.items():
        assert f"  {name} " in listed
        assert command.help
        examples = re.findall(r"^ +pclr-ms (.*)$", command.epilog or "", re.M)
        assert examples, name
        for example in examples:
            first, *rest = example.split()
            assert first == name
            command.make_context(first, rest)


def test_every_file_it_names_is_there() -> None:
    text = docs.document()
    named = set(re.findall(r"\b(v\w+_\w+|laptop\.yaml|atlas_\w+)\b", text))
    assert {"v15_opg", "laptop.yaml"} <= named
    shipped = {
        path.stem
        for folder in ("recipes", "launch")
        for path in files.shipped(folder).glob("*.yaml")
    }
    assert {name.removesuffix(".yaml") for name in named} <= shipped
    for module in re.findall(r"python -m ([\w.]+)", text):
        assert (ROOT / Path(*module.split("."))).with_suffix(".py").is_file()
