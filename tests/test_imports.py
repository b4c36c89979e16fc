"""What may import what: rooms in the order of the walk, and nothing heavy before its time."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import tiny_stages

import pcl_reasoner
from pcl_reasoner.stages import STAGES

PACKAGE = Path(pcl_reasoner.__file__).parent
ROOT = PACKAGE.parent

WALK = (
    "hosts",
    "embedded",
    "curate",
    "contamination",
    "sample",
    "grade",
    "pack",
    "losses",
    "train",
    "evaluate",
    "report",
    "cluster",
)
"""A room may import from the rooms before it."""

EXCEPTIONS = {("sample", "pcl_reasoner.pack.template")}
"""Sampling asks with the very template that packing trains on."""

CALLERS = {
    "cli.py",
    "cli_contamination.py",
    "cli_dry_run.py",
    "cli_evaluation.py",
    "cli_plan.py",
    "cli_training.py",
    "compare.py",
    "dry_run.py",
}
"""What shows a room's values to a person: rendered training, commands, packed rows."""

HEAVY = {
    "mindspore",
    "mindformers",
    "torch",
    "transformers",
    "datasets",
    "numpy",
    "pyarrow",
    "duckdb",
    "tokenizers",
    "sentence_transformers",
    "matplotlib",
    "httpx",
    "safetensors",
    "math_verify",
    "jinja2",
    "huggingface_hub",
    "ray",
    "openvino",
    "faiss",
    "fastokens",
}

MINDSPORE_ROOMS = ("losses", "train")
MINDSPORE_FILES = {
    PACKAGE / "sample" / "embedded.py",
    PACKAGE / "cluster" / "mindspore_2_7.py",
}

SPEAKERS = {
    "cli.py",
    "cli_contamination.py",
    "cli_dry_run.py",
    "cli_evaluation.py",
    "cli_plan.py",
    "cli_training.py",
    "terminal.py",
}

MODULES = sorted(PACKAGE.rglob("*.py"))


def name_of(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def room_of(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in WALK else None


def imported(file: Path) -> Iterator[str]:
    """Modules that a file imports, as deep as they are modules."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            for alias in node.names:
                deeper = f"{node.module}.{alias.name}"
                yield deeper if is_module(deeper) else str(node.module)


def is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def test_there_is_something_to_check() -> None:
    assert PACKAGE / "cli.py" in MODULES
    assert {room_of(name_of(file)) for file in MODULES} >= set(WALK)


@pytest.mark.parametrize("file", MODULES, ids=name_of)
def test_a_room_imports_only_from_rooms_above_it(file: Path) -> None:
    own = room_of(name_of(file))
    for module in imported(file):
        room = room_of(module)
        if own is None or room in (None, own) or (own, module) in EXCEPTIONS:
            continue
        assert WALK.index(str(room)) < WALK.index(own), f"imports {module}, which comes later"
        assert not module.endswith(".stage"), f"imports another room's stage: {module}"


@pytest.mark.parametrize("file", MODULES, ids=name_of)
def test_the_core_knows_no_room(file: Path) -> None:
    if room_of(name_of(file)) is None and file.name not in CALLERS:
        rooms = [module for module in imported(file) if room_of(module)]
        assert not rooms


@pytest.mark.parametrize("file", MODULES, ids=name_of)
def test_only_losses_train_and_the_embedded_sampler_import_mindspore(file: Path) -> None:
    if room_of(name_of(file)) in MINDSPORE_ROOMS or file in MINDSPORE_FILES:
        return
    for module in imported(file):
        assert module.split(".")[0] not in ("mindspore", "mindformers"), f"{file}: {module}"


@pytest.mark.parametrize("file", MODULES, ids=name_of)
def test_only_the_command_line_prints_and_exits(file: Path) -> None:
    if file.name in SPEAKERS:
        return
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called not in ("print", "exit", "quit", "sys.exit", "click.echo"), (
                f"{file}:{node.lineno}: {called}"
            )


def loaded_after(code: str, *words: str) -> set[str]:
    """Top-level packages in a fresh process after some code."""
    tail = "\nimport json, sys; sys.__stdout__.write('\\n' + json.dumps(sorted(sys.modules)))"
    answer = subprocess.run(
        [sys.executable, "-c", code + tail, *words],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "PATH": "/usr/bin:/bin"},
    )
    return {module.split(".")[0] for module in json.loads(answer.stdout.splitlines()[-1])}


CALL = "import sys; from pcl_reasoner.cli import main; assert main(sys.argv[1:]) == 0"
CALL_TINY = (
    "import tiny_stages; from pcl_reasoner import stages; stages.STAGES.update(tiny_stages.TINY); "
    + CALL
)


def test_help_imports_only_click_and_the_standard_library() -> None:
    loaded = loaded_after(CALL, "--help") - set(sys.stdlib_module_names)
    plain = loaded_after("pass") - set(sys.stdlib_module_names)
    assert loaded - plain == {"click", "pcl_reasoner"}


def test_validate_and_a_finished_run_import_nothing_heavy(tmp_path: Path) -> None:
    words = tiny_stages.write(tmp_path)
    runs = ["--runs", str(tmp_path / "runs")]
    loaded_after(CALL_TINY, "run", *words, *runs)
    for command in (["validate", *words], ["run", *words, *runs], ["status", *words, *runs]):
        assert not loaded_after(CALL_TINY, *command) & HEAVY, command


@pytest.mark.parametrize("module", sorted({stage.module for stage in STAGES.values()}))
def test_a_stages_module_is_cheap_to_import(module: str) -> None:
    assert not loaded_after(f"import {module}") & HEAVY
