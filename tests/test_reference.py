"""The generated pages are current, and the examples of the commands parse."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import write_reference
from write_reference import commands, pages

from pcl_reasoner.cli.main import cli, main
from pcl_reasoner.core import files

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("path", pages(), ids=lambda path: path.name)
def test_is_current(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == pages()[path], "run: python docs/write_reference.py"


def test_every_key_says_what_it_means() -> None:
    """Each row is | key | type | default | bounds | meaning |."""
    text = write_reference.recipe_keys() + write_reference.launch_keys()
    rows = [
        re.split(r"(?<!\\)\|", line)[1:-1] for line in text.splitlines() if line.startswith("| `")
    ]
    assert len(rows) > 150
    assert [cells[0].strip() for cells in rows if not cells[4].strip()] == []
    assert "| `start_seconds` | number | `1800.0` | > 0 | Seconds until the server" in text


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
    text = commands()
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
