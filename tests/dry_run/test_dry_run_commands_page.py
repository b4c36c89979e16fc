"""docs/cluster/commands.md has a row for every part of the commands of 16 x 16, and no other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib import metadata, util
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pcl_reasoner.cli.main import cli
from pcl_reasoner.core import files
from pcl_reasoner.core.yaml_file import read_yaml

PAGE = files.PACKAGE.parent / "docs" / "cluster" / "commands.md"
LAUNCH_FILES = ("atlas_910c_16x16", "atlas_910c_16x16_slurm")
COMMANDS = ("shell and Slurm", "training", "serving")
VERDICTS = {"documented", "source only", "ours", "no effect", "open"}
READ_AT = {
    "mindspore": "2.7.2",
    "mindformers": "1.8.0",
    "huggingface_hub": "0.36.2",
    "datasets": "4.0.0",
}


def rows(heading: str) -> list[list[str]]:
    """The cells of the table whose head has this first cell."""
    _, found, rest = PAGE.read_text().partition(f"\n| {heading} |")
    assert found, heading
    lines = rest.split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]


def named(heading: str) -> set[str]:
    """What the first cells of a table name."""
    return {name for row in rows(heading) for name in re.findall(r"`([^`]+)`", row[0])}


def parts(text: str) -> set[str]:
    """Options, variables that are set or that Slurm gives, and sourced files."""
    options = re.findall(r"(?<![\w-])--[a-z][a-z_-]+", text)
    variables = re.findall(r"\b(?:export|env) (?:\S+ )?([A-Z][A-Z_]+)=", text)
    of_slurm = re.findall(r"\$\{?(SLURM_\w+)", text)
    return {*options, *variables, *of_slurm, *re.findall(r"\bsource (/\S+)", text)}


def keys(part: Any) -> Iterator[str]:
    """Every key of a configuration, at any depth."""
    if isinstance(part, Mapping):
        for key, value in part.items():
            yield str(key)
            yield from keys(value)
    elif isinstance(part, list):
        for value in part:
            yield from keys(value)


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, set[str]]:
    """The commands and scripts of both launch files, and the keys of the YAML."""
    text: list[str] = []
    found: set[str] = set()
    for launch in LAUNCH_FILES:
        runs = tmp_path_factory.mktemp(launch)
        words = ["run", "v15_opg", "--launch", launch, "--dry-run", "--runs", str(runs)]
        answer = CliRunner().invoke(cli, words)
        assert answer.exit_code == 0, answer.output
        printed = answer.output.partition("commands, in the order of the run:")[2]
        lines = [line for line in printed.splitlines() if line.startswith("    ")]
        assert len(lines) == 2 * 176, "160 servers and 16 hosts that train, with a comment each"
        text += [line for line in lines if not line.startswith("    # ")]
        scripts = sorted((runs / "v15_opg" / "launch").rglob("*.s[hb]*"))
        # 16 hosts and two files of Slurm's; with Slurm also 32 servers and two files for 5 stages.
        assert len(scripts) == (18 if launch == LAUNCH_FILES[0] else 18 + 5 * 34)
        text += [script.read_text() for script in scripts]
        found |= set(keys(read_yaml(runs / "v15_opg" / "dry_run" / "mindformers.train.yaml")))
    return "\n".join(text), found


def test_every_part_of_the_commands_has_a_row(rendered: tuple[str, set[str]]) -> None:
    on_the_page = set().union(*map(named, COMMANDS))
    assert sorted(parts(rendered[0]) - on_the_page) == []


def test_no_row_is_about_something_that_no_command_has(rendered: tuple[str, set[str]]) -> None:
    on_the_page = set().union(*map(named, COMMANDS))
    assert sorted(name for name in on_the_page if name not in rendered[0]) == []


def test_the_table_of_keys_is_the_configurations(rendered: tuple[str, set[str]]) -> None:
    assert named("key") == rendered[1]


@pytest.mark.parametrize("heading", [*COMMANDS, "key"])
def test_every_row_says_where_and_has_a_verdict(heading: str) -> None:
    for row in rows(heading):
        assert len(row) == 4 and all(row), row
        assert row[3] in VERDICTS, row


@pytest.mark.parametrize("package", READ_AT)
def test_the_cited_lines_of_installed_packages_name_what_the_row_is_about(package: str) -> None:
    if metadata.version(package) != READ_AT[package]:
        pytest.skip(f"{package} {metadata.version(package)} has other lines")
    spec = util.find_spec(package)
    assert spec and spec.origin
    folder, cited = Path(spec.origin).parent.parent, 0
    for row in [row for heading in (*COMMANDS, "key") for row in rows(heading)]:
        names = [name.lstrip("-") for name in re.findall(r"`([^`]+)`", row[0])]
        for file, line in re.findall(rf"`({package}/[\w/]+\.py):(\d+)`", row[2]):
            text = (folder / file).read_text().splitlines()[int(line) - 1]
            assert any(re.search(rf"\b{name}\b", text) for name in names), (file, line, text)
            cited += 1
    assert cited


def test_parts_are_found_in_a_line() -> None:
    line = "source /a/b.sh && export PATH=/x:$PATH && env A_B=1,2 vllm serve /m@x --port 8 --a-b c"
    assert parts(line) == {"/a/b.sh", "PATH", "A_B", "--port", "--a-b"}
    assert parts("#SBATCH --mem=0\n##SBATCH --gres=npu:16\n${SLURM_LOCALID:-0} x--y") == {
        *("--mem", "--gres", "SLURM_LOCALID")
    }
